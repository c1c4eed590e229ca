"""Rule files: rules, packs and notifiers as YAML, with line and column of every mistake."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from stepscope.alerts.packs import PACKS, pack_rules
from stepscope.alerts.rule import Compiled, Rule, RuleError, compile_rule, from_python
from stepscope.alerts.rule_replay import RuleTest
from stepscope.wire.yaml_structs import Document, Mistake, read

NAME = "alerts.yaml"
LONGEST = 512 * 1024
MAX_RULES = 2000


class RuleFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an `alerts.yaml` holds."""

    rules: list[Rule] = []
    notifiers: dict[str, dict[str, Any]] = {}
    """By name: `{ops: {webhook: {url: ...}}}`."""
    packs: dict[str, bool] = {}
    """Built-in packs that are switched off or on; all are on."""
    file: str = ""
    """In a file of tests: the file with the rules."""
    tests: list[RuleTest] = []


class Rules(msgspec.Struct, frozen=True):
    """All rules that are in force, those a person wrote first, and the notifiers by name."""

    rules: tuple[Compiled, ...] = ()
    notifiers: Mapping[str, Mapping[str, Any]] = {}
    tests: tuple[RuleTest, ...] = ()
    places: Mapping[str, tuple[int, int]] = {}
    """The line and column of each notifier."""


def parse(text: str, source: str = "", notifiers: Iterable[str] = ()) -> Rules:
    """Parse a file; Mistake has the line and column of what is wrong.

    Rules of packs are not included. `notifiers` are known from other files.
    """
    return _checked(_read(text), source, notifiers)


def parse_tests(text: str, source: str, beside: Callable[[str], str]) -> Rules:
    """Parse a file of tests; `beside` reads the file with the rules that it names."""
    document = _read(text)
    found = _checked(document, source, ())
    if not document.value.file:
        return found
    try:
        named = parse(beside(document.value.file), document.value.file)
    except (Mistake, OSError) as error:
        raise document.mistake(f"{document.value.file}: {error}", "$.file") from None
    return Rules((*named.rules, *found.rules), {**named.notifiers, **found.notifiers}, found.tests)


@functools.lru_cache(maxsize=4)
def _read(text: str) -> Document[RuleFile]:
    """Read a text; the hub checks, saves and loads the same one, which is read once."""
    example = "`rules:` and a list of rules, such as `- {name: high loss, key: trainer/loss, when: '> 10'}`"
    return read(text, RuleFile, longest=LONGEST, what="a file of rules", example=example)


def _checked(document: Document[RuleFile], source: str, notifiers: Iterable[str]) -> Rules:
    file = document.value
    known = ("log", *notifiers, *file.notifiers)
    if len(file.rules) > MAX_RULES:
        raise document.mistake(f"there are {len(file.rules)} rules; at most {MAX_RULES} are allowed", "$.rules")
    compiled: list[Compiled] = []
    names: set[str] = set()
    for index, rule in enumerate(file.rules):
        try:
            compiled.append(compile_rule(rule, source))
        except RuleError as error:
            raise document.mistake(str(error), f"$.rules[{index}].{error.field}") from None
        if rule.name in names:
            raise document.mistake(f"two rules are named {rule.name}", f"$.rules[{index}].name")
        names.add(rule.name)
        unknown = [name for name in rule.notifiers or () if name not in known]
        if unknown:
            message = f"there is no notifier {unknown[0]!r}; there are {', '.join(known)}"
            raise document.mistake(message, f"$.rules[{index}].notify")
    for name in file.packs:
        if name not in PACKS:
            raise document.mistake(f"there is no pack {name!r}; there are {', '.join(PACKS)}", f"$.packs.{name}")
    for name, kind in file.notifiers.items():
        if len(kind) != 1 or not isinstance(next(iter(kind.values())), (dict, type(None))):
            message = "a notifier is one kind with its options, such as {webhook: {url: https://...}}"
            raise document.mistake(message, f"$.notifiers.{name}")
    places = {name: document.place(f"$.notifiers.{name}") for name in file.notifiers}
    return Rules(tuple(compiled), file.notifiers, tuple(file.tests), places)


def with_packs(texts: Iterable[tuple[str, str]]) -> Rules:
    """Parse (source, text) pairs, later ones overriding earlier ones, and add the packs that none disables."""
    rules: dict[str, Compiled] = {}
    notifiers: dict[str, Mapping[str, Any]] = {}
    places: dict[str, tuple[int, int]] = {}
    packs = dict.fromkeys(PACKS, True)
    for source, text in texts:
        document = _read(text)
        found = _checked(document, source, notifiers)
        rules |= {rule.name: rule for rule in found.rules}
        notifiers |= found.notifiers
        places |= found.places
        packs |= document.value.packs
    for name, wanted in packs.items():
        for rule in pack_rules(name) if wanted else ():
            rules.setdefault(rule.name, rule)
    return Rules(tuple(rules.values()), notifiers, places=places)


__all__ = ["LONGEST", "NAME", "Mistake", "Rules", "from_python", "parse", "parse_tests", "with_packs"]
