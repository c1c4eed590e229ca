"""The rule files of a hub: HOME/alerts.yaml, edited by hand, and HOME/alerts-page.yaml, written by the page."""

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

from stepscope.alerts.notifiers import registry
from stepscope.alerts.notifiers.registry import NotifierConfig
from stepscope.alerts.rule_file import LONGEST, NAME, Mistake, Rules, parse, with_packs
from stepscope.journal.files import replace_file
from stepscope.model.errors import ConfigError

PAGE = "alerts-page.yaml"
FILES = (NAME, PAGE)


class FileMistake(NamedTuple):
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
    """The rule files of one home folder."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def stamp(self) -> tuple[object, ...]:
        """Return a stamp that changes when a file does."""
        found: list[object] = []
        for name in FILES:
            with contextlib.suppress(OSError):
                stat = os.stat(self._home / name)
                found.append((name, stat.st_size, stat.st_mtime_ns, stat.st_ino))
        return tuple(found)

    def text(self, name: str = PAGE) -> str:
        """Return the text of a file; empty when it does not exist."""
        try:
            with open(self._home / name, encoding="utf-8", errors="replace") as file:
                return file.read(LONGEST + 1)
        except OSError:
            return ""

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

    def save(self, text: str) -> None:
        """Replace the page's file atomically; Mistake or OSError when it is unchanged."""
        if text.strip():
            self.check(text)
        replace_file(self._home / PAGE, text.encode(), fsync=True)
