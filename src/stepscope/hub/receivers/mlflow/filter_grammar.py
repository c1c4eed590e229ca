"""MLflow's filter strings and order_by: AND-ed comparisons of metrics, params, tags, attributes and datasets."""

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from stepscope.hub.receivers.mlflow.mlflow_errors import refused

METRIC, PARAM, TAG, ATTRIBUTE, DATASET = KINDS = ("metric", "parameter", "tag", "attribute", "dataset")
_KINDS = {
    **dict.fromkeys(("metric", "metrics"), METRIC),
    **dict.fromkeys(("parameter", "parameters", "param", "params"), PARAM),
    **dict.fromkeys(("tag", "tags"), TAG),
    **dict.fromkeys(("attribute", "attributes", "attr", "run"), ATTRIBUTE),
    **dict.fromkeys(("dataset", "datasets"), DATASET),
}
_ALIASES = {"created": "start_time", "Created": "start_time"} | dict.fromkeys(
    ("run name", "Run name", "Run Name"), "run_name"
)
_NUMERIC, _TEXTUAL = ("=", "!=", "<", "<=", ">", ">="), ("=", "!=", "LIKE", "ILIKE")
_NULLS, _LISTS = ("IS NULL", "IS NOT NULL"), ("IN", "NOT IN")
_TOKEN = re.compile(
    r"""\s+ | (?P<comment>/\*.*?\*/|--[^\n]*) | (?P<text>'(?:''|\\'|[^'])*')
    | (?P<list>\((?:[^()'"]|'[^']*'|"[^"]*")*\))
    | (?P<name>(?:[^\W\d]\w*|`[^`]*`|"[^"]*")(?:\.(?:\w+|`[^`]*`|"[^"]*"|'[^']*'))*)
    | (?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?) | (?P<operator><=|>=|!=|<>|==|=|<|>|~) | (?P<other>\S)""",
    re.VERBOSE | re.DOTALL,
)
LONGEST = 100_000
"""Characters of one filter."""

Value: TypeAlias = str | float | int | tuple[str, ...] | None


class Subject(NamedTuple):
    """The searchable attributes of an entity: which exist, which are numeric, which are ids."""

    attributes: Collection[str]
    numbers: Collection[str]
    lists: Collection[str]
    """Attributes that are compared with a list of texts."""
    kinds: Collection[str] = KINDS
    valid: str = f"Valid values are {list(KINDS)}"
    """What MLflow says of another kind."""
    quoted: bool = True
    """Whether MLflow's messages quote clauses that cannot be read; else a name for a value is one of them."""


class Clause(NamedTuple):
    """One comparison."""

    kind: str
    key: str
    comparator: str
    value: Value


class _Token(NamedTuple):
    kind: str
    text: str


def parse_filter(text: str, subject: Subject) -> list[Clause]:
    """Parse a filter string, or refuse it, with MLflow's messages where it has them."""
    if len(text) > LONGEST:
        raise refused(f"Invalid filter. It is longer than {LONGEST} characters.")
    if text and not text.strip():
        raise refused(f"Invalid filter '{text}'. Could not be parsed.")
    tokens = [token for token in _tokens(text) if token.text.upper() != "AND"]
    if any(token.text == ";" for token in tokens[:-1]):
        raise refused(f"Search filter contained multiple expression {text!r}. Provide AND-ed expression list.")
    comparisons, strange = _comparisons(tokens, subject)
    if any(token.kind == "other" and token.text == "," for token in tokens):
        strange = [text]
    if strange:
        quoted = [f"'{each}'" for each in strange] if subject.quoted else strange
        raise refused(f"Invalid clause(s) in filter string: {', '.join(quoted)}")
    return [_clause(each, subject) for each in comparisons]


def _comparisons(tokens: Sequence[_Token], subject: Subject) -> tuple[list[Sequence[_Token]], list[str]]:
    """Return the tokens of each comparison, and those that belong to none."""
    found, strange = [], []
    at = 0
    while at < len(tokens):
        size = _size(tokens[at : at + 3], subject)
        if size:
            found.append(tokens[at : at + size])
        else:
            strange.append(tokens[at].text)
        at += size or 1
    return found, strange


def _tokens(text: str) -> list[_Token]:
    found = [_Token(str(each.lastgroup), each[0]) for each in _TOKEN.finditer(text) if each.lastgroup]
    return list(_joined(found))


def _joined(tokens: Sequence[_Token]) -> Iterator[_Token]:
    """Join operators of several words into one token each."""
    at = 0
    while at < len(tokens):
        for words in ("IS NOT NULL", "IS NULL", "NOT IN", "NOT LIKE", "NOT ILIKE", "IN", "LIKE", "ILIKE"):
            size = len(words.split())
            if " ".join(each.text.upper() for each in tokens[at : at + size]) == words:
                yield _Token("operator", words)
                at += size
                break
        else:
            yield tokens[at]
            at += 1


def _size(tokens: Sequence[_Token], subject: Subject) -> int:
    """Return how many tokens the comparison has that the first one starts; 0 when it starts none."""
    first = ("name", "text", "number") if subject.quoted else ("name",)
    if tokens[0].kind not in first or len(tokens) < 2 or tokens[1].kind != "operator":
        return 0
    comparator = tokens[1].text.upper()
    if comparator in _NULLS:
        return 2 if tokens[0].kind == "name" else 0
    is_value = len(tokens) == 3 and tokens[2].kind not in ("comment", "operator") and tokens[2].text not in "+-*/,;."
    if not is_value or (comparator in _LISTS and tokens[2].kind != "list"):
        return 0
    bare = tokens[2].kind == "name" and tokens[2].text[0] not in '"`'
    return 0 if bare and not subject.quoted else 3


def _clause(tokens: Sequence[_Token], subject: Subject) -> Clause:
    comparator = tokens[1].text.upper()
    if tokens[0].kind != "name":
        raise refused(f"Invalid comparison clause. Expected 'Identifier' found '{tokens[0].text}'")
    kind, key = _identifier(tokens[0].text, subject)
    if comparator in _NULLS:
        if kind not in (TAG, PARAM):
            raise refused(f"IS NULL / IS NOT NULL is only supported for tags and params, not for '{kind}' '{key}'")
        return Clause(kind, key, comparator, None)
    value = _value(kind, key, tokens, subject)
    _check_comparator(kind, key, comparator, subject)
    return Clause(kind, key, comparator, value)


def _identifier(text: str, subject: Subject) -> tuple[str, str]:
    head, dot, rest = text.partition(".")
    word, key = (_bare(head), rest) if dot else (ATTRIBUTE, text)
    kind = _KINDS.get(word)
    if kind is None or kind not in subject.kinds:
        raise refused(f"Invalid entity type '{word}'. {subject.valid}")
    key = _bare(key)
    if kind == ATTRIBUTE:
        key = _ALIASES.get(key, key)
        if key not in subject.attributes:
            raise refused(f"Invalid attribute key '{key}' specified. Valid keys are '{sorted(subject.attributes)}'")
    if kind == DATASET and key not in ("name", "digest", "context"):
        raise refused(f"Invalid dataset key '{key}' specified. Valid keys are '['context', 'digest', 'name']'")
    return kind, key


def _bare(text: str) -> str:
    for mark in ('"', "'", "`"):
        if len(text) > 1 and text[0] == text[-1] == mark:
            return text[1:-1]
    return text


def _value(kind: str, key: str, tokens: Sequence[_Token], subject: Subject) -> Value:
    token = tokens[2]
    if kind == METRIC or (kind == ATTRIBUTE and key in subject.numbers):
        if token.kind != "number":
            what = "metric" if kind == METRIC else f"numeric attribute: {_bare(tokens[0].text.rpartition('.')[2])}"
            raise refused(f"Expected numeric value type for {what}. Found {token.text}")
        whole = kind == ATTRIBUTE and token.text.isdecimal() and len(token.text) < 19  # an int64
        return int(token.text) if whole else float(token.text)
    if token.kind == "text" or (token.kind == "name" and token.text[:1] == token.text[-1:] == '"'):
        return token.text[1:-1]
    if token.kind == "name" and token.text.upper() != "NULL":
        raise refused(
            "Parameter value is either not quoted or unidentified quote types used for string value "
            f"{token.text}. Use either single or double quotes."
        )
    if token.kind == "list" and kind in (ATTRIBUTE, DATASET):
        if kind == ATTRIBUTE and key not in subject.lists:
            names = sorted(subject.lists)
            raise refused(f"Only {names} attributes support comparison with a list of quoted string values.")
        return _list(token.text)
    if kind in (PARAM, TAG):
        raise refused(f"Expected a quoted string value for {kind} (e.g. 'my-value'). Got value {token.text}")
    what = "attributes" if kind == ATTRIBUTE else "dataset attributes"
    raise refused(f"Expected a quoted string value for {what}. Got value {token.text}")


def _list(text: str) -> tuple[str, ...]:
    start = "While parsing a list in the query, expected"
    try:
        read = ast.literal_eval(text)  # a single pair of parentheses: no nesting
    except (ValueError, SyntaxError):
        raise refused(f"{start} a non-empty list of string values, but got ill-formed list.") from None
    found = read if isinstance(read, tuple) else (read,)
    if not found:
        raise refused(f"{start} a non-empty list of string values, but got empty list")
    if not all(isinstance(each, str) for each in found):
        raise refused(f"{start} string value, punctuation, or whitespace, but got different type in list: {found}")
    return found


def _check_comparator(kind: str, key: str, comparator: str, subject: Subject) -> None:
    if kind == METRIC or (kind == ATTRIBUTE and key in subject.numbers):
        known: tuple[str, ...] = _NUMERIC
    elif kind in (PARAM, TAG):
        known = (*_TEXTUAL, *_NULLS)
    else:
        known = (*_TEXTUAL, *_LISTS)
    if comparator not in known:
        raise refused(f"Invalid comparator '{comparator}' not one of '{', '.join(known)}'")


class Order(NamedTuple):
    """One order_by clause."""

    kind: str
    key: str
    ascending: bool


def parse_order(text: str, subject: Subject) -> Order:
    """Parse one order_by clause."""
    tokens = _tokens(text[:LONGEST])
    is_name = 1 <= len(tokens) <= 2 and all(token.kind == "name" for token in tokens)
    if text != text.strip() or not is_name or tokens[0].text.upper() in ("ASC", "DESC"):
        raise refused(f"Invalid order_by clause '{text}'. Could not be parsed.")
    word = tokens[1].text.lower() if len(tokens) > 1 else "asc"
    if word not in ("asc", "desc"):
        raise refused(f"Invalid ordering key in order_by clause '{text}'.")
    kind, key = _identifier(tokens[0].text, subject)
    if kind == ATTRIBUTE and " " in tokens[0].text:  # the names of columns are for filters alone
        name = _bare(tokens[0].text.rpartition(".")[2])
        raise refused(f"Invalid attribute key '{name}' specified. Valid keys are '{sorted(subject.attributes)}'")
    return Order(kind, key, word == "asc")


RUNS = Subject(
    ("artifact_uri", "end_time", "run_id", "run_name", "start_time", "status", "user_id"),
    ("start_time", "end_time"),
    ("run_id",),
)
MODELS = Subject(
    (
        *("creation_time", "creation_timestamp", "creation_timestamp_ms", "last_updated_timestamp"),
        *("last_updated_timestamp_ms", "model_id", "model_type", "name", "source_run_id", "status"),
    ),
    (
        "creation_time",
        "creation_timestamp",
        "creation_timestamp_ms",
        "last_updated_timestamp",
        "last_updated_timestamp_ms",
    ),
    ("model_id", "name", "source_run_id", "status", "model_type"),
    (METRIC, PARAM, TAG, ATTRIBUTE),
)
EXPERIMENTS = Subject(
    ("creation_time", "experiment_id", "last_update_time", "name"),
    ("creation_time", "last_update_time"),
    ("experiment_id",),
    (ATTRIBUTE, TAG),
    "Valid entity types are ('attribute', 'tag', 'tags')",
    quoted=False,
)
