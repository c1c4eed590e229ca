"""The rule files of a hub: HOME/alerts.yaml, edited by hand, and HOME/alerts-page.yaml, written by the page."""

import contextlib
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from stepscope.alerts.notifiers import registry
from stepscope.alerts.notifiers.registry import NotifierConfig
from stepscope.alerts.rule_file import LONGEST, NAME, Mistake, Rules, parse, with_packs
from stepscope.hub.texts import TextFiles, Texts, version_of
from stepscope.model.errors import ConfigError

_HAND = NAME.removesuffix(".yaml")
PAGE_NAME = "alerts-page"
PAGE = f"{PAGE_NAME}.yaml"
FILES = (NAME, PAGE)


class FileMistake(Struct, frozen=True):
    """An error in a rule file, with its position."""

    file: str
    line: int
    column: int
    message: str


class Loaded(NamedTuple):
    """The content of the files; an invalid file is ignored and reported."""

    rules: Rules
    notifiers: dict[str, NotifierConfig]
    mistakes: list[FileMistake]


class RuleFiles:
    """The rule files of one home folder; hubs that share a store share the text of the page."""

    def __init__(self, home: Path, page: Texts | None = None) -> None:
        self._files = TextFiles(home, LONGEST, 0o600)
        self._page: Texts = page or self._files

    def stamp(self) -> tuple[object, ...]:
        """Return a stamp that changes when a file does."""
        return self._files.stamp(_HAND), self._page.stamp(PAGE_NAME)

    def text(self, name: str = PAGE) -> str:
        """Return the text of a file; empty when it does not exist."""
        found = self._page.read(PAGE_NAME) if name == PAGE else self._files.read(_HAND)
        return found or ""

    @property
    def page_version(self) -> str:
        """The version of the page's rules."""
        return version_of(self._page.read(PAGE_NAME))

    def load(self) -> Loaded:
        """Read the files."""
        texts: list[tuple[str, str]] = []
        mistakes: list[FileMistake] = []
        for name in FILES:
            text = self.text(name)
            if not text.strip():
                continue
            try:
                with_packs([*texts, (name, text)])
                texts.append((name, text))
            except Mistake as mistake:
                mistakes.append(FileMistake(name, mistake.line, mistake.column, str(mistake)))
        rules = with_packs(texts)
        notifiers: dict[str, NotifierConfig] = {}
        for name, given in {"log": {"log": {}}, **rules.notifiers}.items():
            try:
                notifiers[name] = registry.read(name, given)
            except ConfigError as error:
                mistakes.append(FileMistake(NAME, *rules.places.get(name, (1, 1)), str(error)))
        return Loaded(rules, notifiers, mistakes)

    def check(self, text: str) -> Rules:
        """Validate the text of the page's file, or raise Mistake.

        Notifiers may only be defined in alerts.yaml, since one of them runs commands.
        """
        found = self.parse(text)
        if found.notifiers:
            raise Mistake(f"notifiers are configured in {NAME} on the hub's machine, not from the page")
        return found

    def parse(self, text: str) -> Rules:
        """Parse rules that may name the notifiers of alerts.yaml, or raise Mistake."""
        others: Rules = Rules()
        with contextlib.suppress(Mistake):
            others = with_packs([(NAME, self.text(NAME))] if self.text(NAME).strip() else [])
        return parse(text, PAGE, others.notifiers)

    def save(self, text: str, version: str | None = None) -> None:
        """Replace the page's rules, as `Texts.save` does; Mistake when they are wrong."""
        if text.strip():
            self.check(text)
        self._page.save(PAGE_NAME, text, version)
