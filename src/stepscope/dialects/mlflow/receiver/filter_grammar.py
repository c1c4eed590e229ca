"""MLflow's filter strings and order_by: AND-ed comparisons of metrics, params, tags, attributes and datasets.

MLflow reads them with `sqlparse`, and its messages quote what that makes of a text. So does this module.
"""

import ast
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeAlias

import sqlparse
from sqlparse import tokens as types
from sqlparse.exceptions import SQLParseError
from sqlparse.sql import Comparison, Identifier, Parenthesis, Token, TokenList

from stepscope.dialects.mlflow.receiver.errors import BAD_REQUEST, refused
from stepscope.extend.receiver import Refused

METRIC, PARAM, TAG, ATTRIBUTE, DATASET = KINDS = ("metric", "parameter", "tag", "attribute", "dataset")
_KINDS = {
    **dict.fromkeys(("metric", "metrics"), METRIC),
    **dict.fromkeys(("parameter", "parameters", "param", "params"), PARAM),
    **dict.fromkeys(("tag", "tags"), TAG),
    **dict.fromkeys(("attribute", "attributes", "attr", "run"), ATTRIBUTE),
    **dict.fromkeys(("dataset", "datasets"), DATASET),
}
_TIME_ALIASES = {"created": "start_time", "Created": "start_time"}
_ALIASES = _TIME_ALIASES | dict.fromkeys(("run name", "Run name", "Run Name"), "run_name")
NUMBERS = (types.Literal.Number.Integer, types.Literal.Number.Float)
NUMERIC, TEXTUAL = ("=", "!=", "<", "<=", ">", ">="), ("=", "!=", "LIKE", "ILIKE")
NULLS, LISTS = ("IS NULL", "IS NOT NULL"), ("IN", "NOT IN")
LONGEST = 100_000
"""Characters of one filter."""

Value: TypeAlias = str | float | int | tuple[str, ...] | None


class Subject(NamedTuple):
    """The searchable attributes of an entity: which exist, which are numeric, which are ids."""

    attributes: Collection[str]
    numbers: Collection[str]
    lists: Collection[str]
    """Attributes that are compared with a list of texts."""
    aliases: Collection[str] = ()
    """Other names of attributes, in filters."""
    order_aliases: Collection[str] = ()
    """Other names of attributes, in orders."""
    words: Collection[str] | None = None
    """The entities that may be named; without these, all."""


class Clause(NamedTuple):
    """One comparison."""

    kind: str
    key: str
    comparator: str
    value: Value


def parse_filter(text: str, subject: Subject) -> list[Clause]:
    """Parse a filter string, or refuse it with MLflow's message. Comparators are not checked."""
    return [_clause(each, subject) for each in read_comparisons(text, quoted=not subject.words)]


def read_comparisons(
    text: str, *, quoted: bool = True, prepare: Callable[[Sequence[Token]], Sequence[Token]] = list
) -> list[Comparison]:
    """Return the AND-ed comparisons of a filter string, or refuse it with MLflow's message.

    `prepare` changes the tokens first; `quoted` is whether the message puts what is no comparison in quotes.
    """
    if not text:
        return []
    try:
        statements = split_statements(text)
    except SQLParseError:
        raise refused(f"Error on parsing filter '{text}'") from None
    if not statements:
        raise refused(f"Invalid filter '{text}'. Could not be parsed.")
    if len(statements) > 1:
        raise refused(f"Search filter contained multiple expression {text!r}. Provide AND-ed expression list.")
    tokens = list(join_lists(prepare(statements[0].tokens)))
    strange = [str(each) for each in tokens if not isinstance(each, Comparison) and not is_word(each, "AND")]
    if strange:
        shown = [f"'{each}'" for each in strange] if quoted else strange
        raise refused(f"Invalid clause(s) in filter string: {', '.join(shown)}")
    return [each for each in tokens if isinstance(each, Comparison)]


def split_statements(text: str) -> list[TokenList]:
    """Return the statements of a text; of many only the first two. What `sqlparse` raises goes on."""
    if len(text) > LONGEST:
        raise refused(f"Invalid filter. It is longer than {LONGEST} characters.")
    return list(islice(sqlparse.parsestream(text), 2))


def is_word(token: Token, word: str) -> bool:
    """Return whether a token is a keyword."""
    return bool(token.match(types.Keyword, [word]))


def join_lists(tokens: Sequence[Token]) -> Iterator[Token]:
    """Join comparisons with lists and with NULL, which `sqlparse` leaves apart.

    As in MLflow, a name takes the two or three tokens behind it even if they are no such comparison.
    """
    rest = [token for token in tokens if not token.is_whitespace]
    while len(rest) >= 3:
        if not isinstance(rest[0], Identifier):
            yield rest.pop(0)
            continue
        name, second, third = rest[:3]
        if is_word(second, "IN") and isinstance(third, Parenthesis):
            yield Comparison(TokenList([name, second, third]))
            del rest[:3]
        elif is_word(second, "IS") and third.ttype is types.Keyword and third.value.upper() in ("NULL", "NOT NULL"):
            yield Comparison(TokenList([name, Token(types.Keyword, f"IS {third.value.upper()}")]))
            del rest[:3]
        elif is_word(second, "NOT") and is_word(third, "IN") and len(rest) > 3 and isinstance(rest[3], Parenthesis):
            yield Comparison(TokenList([name, Token(types.Keyword, "NOT IN"), rest[3]]))
            del rest[:4]
        else:
            yield from rest[:4]
            del rest[:4]
    yield from rest


def split_comparison(comparison: Comparison, *, nulls: bool = True) -> tuple[Token, str, Token | None]:
    """Return the name, the comparator and the value of a comparison; None for the value of one with NULL."""
    tokens = [token for token in comparison.tokens if not token.is_whitespace]
    is_null = nulls and len(tokens) == 2 and tokens[1].value.upper() in NULLS
    if len(tokens) != 3 and not is_null:
        raise refused(f"Invalid comparison clause. Expected 3 tokens found {len(tokens)}")
    return tokens[0], tokens[1].value, None if is_null else tokens[2]


def name_of(token: Token) -> str:
    """Return the name that is compared; anything else is refused."""
    if not isinstance(token, Identifier):
        raise refused(f"Invalid comparison clause. Expected 'Identifier' found '{token}'")
    return str(token.value)


def _clause(comparison: Comparison, subject: Subject) -> Clause:
    name, comparator, value = split_comparison(comparison)
    kind, key = _identifier(name_of(name), subject, subject.aliases)
    if value is None:
        _check_null(kind, key, subject)
        return Clause(kind, key, comparator, None)
    comparator = comparator if subject.words else comparator.upper()
    return Clause(kind, _ALIASES.get(key, key), comparator, _value(kind, key, value, subject))


def _check_null(kind: str, key: str, subject: Subject) -> None:
    start = "IS NULL / IS NOT NULL is only supported for tags"
    if subject.words and kind != TAG:
        raise refused(f"{start}, not for attribute '{key}'")
    if kind not in (TAG, PARAM):
        raise refused(f"{start} and params, not for '{kind}' '{key}'")


def _identifier(text: str, subject: Subject, aliases: Collection[str]) -> tuple[str, str]:
    head, dot, rest = text.partition(".")
    word, key = (head, rest) if dot else (ATTRIBUTE, text)
    if subject.words and word not in subject.words:
        raise refused(f"Invalid entity type '{word}'. Valid entity types are {tuple(subject.words)}")
    word = trimmed(word, "`")
    kind = _KINDS.get(word)
    if kind is None:
        raise refused(f"Invalid entity type '{word}'. Valid values are {list(KINDS)}")
    key = trimmed(trimmed(key, "'", '"'), "`")
    if kind == ATTRIBUTE and key not in subject.attributes and key not in aliases:
        known = sorted({*subject.attributes, *aliases})
        raise refused(f"Invalid attribute key '{key}' specified. Valid keys are '{known}'")
    if kind == DATASET and key not in ("name", "digest", "context"):
        raise refused(f"Invalid dataset key '{key}' specified. Valid keys are '['context', 'digest', 'name']'")
    return kind, key


def trimmed(text: str, *marks: str) -> str:
    """Remove the first kind of quotes that is around a text."""
    for mark in marks:
        if len(text) > 1 and text[0] == text[-1] == mark:
            return text[1:-1]
    return text


def _value(kind: str, key: str, token: Token, subject: Subject) -> Value:
    if kind == METRIC or (kind == ATTRIBUTE and _ALIASES.get(key, key) in subject.numbers):
        if token.ttype not in NUMBERS:
            what = "metric" if kind == METRIC else f"numeric attribute: {key}"
            raise refused(f"Expected numeric value type for {what}. Found {token.value}")
        return read_number(token) if kind == ATTRIBUTE else float(token.value)
    if (text := read_text(token)) is not None:
        return text
    if isinstance(token, Parenthesis) and kind in (ATTRIBUTE, DATASET):
        if kind == ATTRIBUTE and key not in subject.lists:
            names = sorted(subject.lists)
            raise refused(f"Only {names} attributes support comparison with a list of quoted string values.")
        return read_list(token.value)
    if kind in (PARAM, TAG):
        raise refused(f"Expected a quoted string value for {kind} (e.g. 'my-value'). Got value {token.value}")
    what = "attributes" if kind == ATTRIBUTE else "dataset attributes"
    raise refused(f"Expected a quoted string value for {what}. Got value {token.value}")


def read_text(token: Token) -> str | None:
    """Return the text in quotes; None when the token is no text."""
    if token.ttype is not types.Literal.String.Single and not isinstance(token, Identifier):
        return None
    text = trimmed(token.value, "'", '"')
    if text == token.value:
        raise refused(
            "Parameter value is either not quoted or unidentified quote types used for string value "
            f"{token.value}. Use either single or double quotes."
        )
    return text


def read_number(token: Token) -> int | float:
    """Return a number; a whole one as an int64."""
    is_whole = token.ttype is types.Literal.Number.Integer and len(token.value) < 19
    return int(token.value) if is_whole else float(token.value)


def read_list(text: str) -> tuple[str, ...]:
    """Read a list of texts in parentheses."""
    start = "While parsing a list in the query, expected"
    try:
        read = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise refused(f"{start} a non-empty list of string values, but got ill-formed list.") from None
    found = read if isinstance(read, tuple) else (read,)
    if not found:
        raise refused(f"{start} a non-empty list of string values, but got empty list")
    if not all(isinstance(each, str) for each in found):
        raise refused(f"{start} string value, punctuation, or whitespace, but got different type in list: {found}")
    return found


def check_comparators(clauses: Sequence[Clause], subject: Subject) -> None:
    """Refuse comparators that a kind does not have."""
    for kind, key, comparator, value in clauses:
        if kind == METRIC or (kind == ATTRIBUTE and key in subject.numbers):
            known: tuple[str, ...] = NUMERIC
        elif kind in (PARAM, TAG):
            known = (*TEXTUAL, *NULLS)
        else:
            known = (*TEXTUAL, *LISTS)
        if comparator not in known:
            raise refused(f"Invalid comparator '{comparator}' not one of '{', '.join(known)}'")
        check_list(comparator, value)


def check_list(comparator: str, value: Value) -> None:
    """Refuse a list of values with a comparator for one."""
    if isinstance(value, tuple) and comparator not in LISTS:
        raise refused(f"A list of values needs IN or NOT IN, got '{comparator}'", BAD_REQUEST)


class Order(NamedTuple):
    """One order_by clause."""

    kind: str
    key: str
    ascending: bool


def parse_order(text: str, subject: Subject) -> Order:
    """Parse one order_by clause."""
    name, ascending = split_order(text)
    kind, key = _identifier(name, subject, subject.order_aliases)
    return Order(kind, _ALIASES.get(key, key), ascending)


def split_order(text: str) -> tuple[str, bool]:
    """Return the name in an order_by clause, and whether the order is ascending."""
    unread = refused(f"Invalid order_by clause '{text}'. Could not be parsed.")
    try:
        statements = split_statements(text)
    except SQLParseError:
        raise refused(f"Error on parsing order_by clause '{text}'") from None
    if len(statements) != 1:
        raise unread
    name, words = _order_words(statements[0].tokens, unread)
    if len(words) > 2:
        raise unread
    word = words[1].lower() if len(words) == 2 else "asc"
    if word not in ("asc", "desc"):
        raise refused(f"Invalid ordering key in order_by clause '{text}'.")
    return words[0] if len(words) == 2 else name.strip(), word == "asc"


def _order_words(tokens: Sequence[Token], unread: Refused) -> tuple[str, list[str]]:
    """Return a name with its direction, as it is written and as words without quotes."""
    first = tokens[0]
    timestamp = bool(first.match(types.Name.Builtin, ["timestamp"]))
    if len(tokens) == 1 and (timestamp or isinstance(first, Identifier)):
        name = "timestamp" if timestamp else first.value
    elif timestamp and all(each.is_whitespace for each in tokens[1:-1]) and tokens[-1].ttype is types.Keyword.Order:
        name = f"timestamp {tokens[-1].value}"
    else:
        raise unread
    try:
        return name, shlex.split(name.replace("`", '"'))
    except ValueError:  # a quote that is not closed
        raise unread from None


RUNS = Subject(
    ("artifact_uri", "end_time", "run_id", "run_name", "start_time", "status", "user_id"),
    ("start_time", "end_time"),
    ("run_id",),
    tuple(_ALIASES),
    tuple(_TIME_ALIASES),
)
EXPERIMENTS = Subject(
    ("creation_time", "experiment_id", "last_update_time", "name"),
    ("creation_time", "last_update_time"),
    ("experiment_id",),
    words=("attribute", "tag", "tags"),
)
