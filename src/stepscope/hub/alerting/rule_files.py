"""The rules of a hub: HOME/alerts.yaml, which a person writes, and HOME/alerts-page.yaml, which the page writes."""

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
    """Where a file is wrong."""

    file: str
    line: int
    column: int
    message: str


class Loaded(NamedTuple):
    """What the files say; a file that is wrong counts as none, and its mistake is reported."""

    rules: Rules
    notifiers: dict[str, NotifierConfig]
    mistakes: list[FileMistake]


class RuleFiles:
    """The files of one home."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def stamp(self) -> tuple[object, ...]:
        """What tells whether a file was changed."""
        found: list[object] = []
        for name in FILES:
            with contextlib.suppress(OSError):
                stat = os.stat(self._home / name)
                found.append((name, stat.st_size, stat.st_mtime_ns, stat.st_ino))
        return tuple(found)

    def text(self, name: str = PAGE) -> str:
        """The text of a file; empty when there is none."""
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
                mistakes.append(FileMistake(NAME, 1, 1, str(error)))
        return Loaded(rules, notifiers, mistakes)

    def check(self, text: str) -> Rules:
        """Read a text as the page's file; Mistake where it is wrong.

        Notifiers are left to the file of the person: one of them runs commands.
        """
        others: Rules = Rules()
        with contextlib.suppress(Mistake):
            others = with_packs([(NAME, self.text(NAME))] if self.text(NAME).strip() else [])
        found = parse(text, PAGE, others.notifiers)
        if found.notifiers:
            raise Mistake(f"notifiers are configured in {NAME} on the hub's machine, not from the page")
        return found

    def save(self, text: str) -> None:
        """Replace the page's file, whole or not at all; Mistake or OSError when it stays as it was."""
        if text.strip():
            self.check(text)
        replace_file(self._home / PAGE, text.encode(), fsync=True)
