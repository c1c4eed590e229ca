"""Which user-supplied SQL may run: a statement passes when every token and node of it is on a list."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

from stepscope.hub.store.engine import Engine, EngineError, Limits, RowStream, Stop
from stepscope.hub.store.schema import PUBLIC
from stepscope.model.errors import StepscopeError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


KEYWORDS = _words(
    """SELECT DISTINCT FROM WHERE PREWHERE GROUP BY ORDER HAVING LIMIT OFFSET WITH TIES ROLLUP CUBE FINAL
    AS AND OR NOT IN GLOBAL LIKE ILIKE BETWEEN IS NULL CASE WHEN THEN ELSE END ASC DESC NULLS FIRST LAST ON USING
    JOIN INNER LEFT RIGHT FULL OUTER CROSS ANY ALL SEMI ANTI ASOF ARRAY UNION EXCEPT INTERSECT INTERVAL SECOND MINUTE
    HOUR DAY WEEK MONTH YEAR OVER PARTITION ROWS RANGE UNBOUNDED PRECEDING FOLLOWING CURRENT ROW WINDOW EXISTS
    TRUE FALSE"""
)
"""Keywords that may precede a parenthesis or a string without being a function."""
CLOSED = _words(
    """SETTINGS FORMAT INTO OUTFILE INFILE INSERT UPDATE DELETE ALTER CREATE DROP TRUNCATE RENAME EXCHANGE ATTACH
    DETACH OPTIMIZE SYSTEM SET USE KILL GRANT REVOKE SHOW DESCRIBE EXPLAIN BACKUP RESTORE WATCH CHECK MOVE EXECUTE
    INFORMATION_SCHEMA DEFAULT STEPSCOPE APPLY REPLACE COLUMNS VIEW DICTIONARY DATABASE TABLE FUNCTION SAMPLE QUALIFY
    INTERPOLATE TEMPORARY RECURSIVE MATERIALIZED VALUES TRIM EXTRACT CURRENT_USER USER COLLATE"""
)
"""Words that reach outside a SELECT over our tables; none is the name of a column."""
_AGGREGATES = _words(
    """count sum avg min max any anylast argmin argmax uniq uniqexact uniqcombined uniqhll12 median
    quantile quantiles quantileexact quantilesexact quantiletiming quantiletdigest quantiledeterministic
    stddevpop stddevsamp varpop varsamp covarpop covarsamp corr skewpop skewsamp kurtpop kurtsamp
    grouparray groupuniqarray grouparraymovingavg grouparraymovingsum groupbitor groupbitand groupbitxor
    summap minmap maxmap topk histogram simplelinearregression first_value last_value deltasum"""
)
_COMBINED = frozenset(
    name + suffix for name in _AGGREGATES for suffix in ("", "if", "array", "merge", "distinct", "ordefault")
)
_PLAIN = _words(
    """abs sign sqrt cbrt exp exp2 exp10 log log2 log10 ln pow power sin cos tan asin acos atan atan2 round floor ceil
    ceiling trunc truncate intdiv intdivorzero modulo positivemodulo gcd lcm greatest least plus minus multiply divide
    negate isnan isfinite isinfinite ifnotfinite if multiif coalesce ifnull nullif isnull isnotnull assumenotnull
    tonullable and or not xor equals notequals less greater lessorequals greaterorequals in notin
    touint8 touint16 touint32 touint64 toint8 toint16 toint32 toint64 tofloat32 tofloat64 tostring tofixedstring
    todate todatetime todatetime64 tounixtimestamp fromunixtimestamp cast totypename
    tostartofsecond tostartofminute tostartoffiveminutes tostartofhour tostartofday tostartofinterval
    tohour tominute tosecond todayofweek todayofmonth todayofyear tomonth toyear toyyyymm toyyyymmdd now today yesterday
    datediff dateadd datesub formatdatetime tointervalsecond tointervalminute tointervalhour tointervalday
    fromunixtimestamp64nano fromunixtimestamp64milli tounixtimestamp64nano
    length empty notempty lower upper lowerutf8 upperutf8 lengthutf8 reverse concat substring substringutf8
    startswith endswith position positioncaseinsensitive positionutf8 positioncaseinsensitiveutf8 like notlike ilike
    match extractall replaceone replaceall replaceregexpone replaceregexpall splitbychar splitbystring
    trimleft trimright trimboth hex unhex base64encode base64decode leftpad rightpad tovalidutf8
    array tuple tupleelement arrayelement has hasall hasany indexof countequal arrayjoin arraymap arrayfilter arraysum
    arrayavg arraymin arraymax arraycount arrayexists arrayall arrayfirst arrayfirstindex arraysort arrayreversesort
    arrayreverse arrayslice arrayconcat arraydistinct arrayuniq arrayzip arrayenumerate arraycumsum arraydifference
    arraycompact arraystringconcat arraypushback arraypushfront arrayreduce range arraywithconstant
    bitand bitor bitxor bitnot bitshiftleft bitshiftright bittest
    cityhash64 siphash64 halfmd5 md5 xxhash64 inthash64
    row_number rank dense_rank lag lead laginframe leadinframe ntile runningdifference neighbor
    uint8 uint16 uint32 uint64 int8 int16 int32 int64 float32 float64 string fixedstring nullable datetime64 decimal
    decimal32 decimal64 decimal128"""
)
FUNCTIONS = _COMBINED | _PLAIN
"""Pure functions, in lower case."""
REDUCERS = _COMBINED - frozenset(name for name in _COMBINED if name.endswith("merge"))
"""Aggregate functions that `arrayReduce` may apply, in lower case."""
TYPES = _words(
    """bool uint8 uint16 uint32 uint64 uint128 uint256 int8 int16 int32 int64 int128 int256 float32 float64 string
    fixedstring uuid ipv4 ipv6 date date32 datetime datetime64 decimal decimal32 decimal64 decimal128 array tuple
    nullable lowcardinality utc"""
)
"""Words in the types that a value may be cast to, in lower case."""
OPERATORS = _words(
    """lambda exists globalin globalnotin isnotdistinctfrom isdistinctfrom notilike arraydot singlevalueornull
    nullin notnullin"""
)
"""Functions that the parser substitutes for operators."""
NODES = _words(
    """SelectWithUnionQuery SelectQuery SelectIntersectExceptQuery ExpressionList Identifier TableIdentifier Literal
    Function Asterisk QualifiedAsterisk Subquery TablesInSelectQuery TablesInSelectQueryElement TableExpression
    TableJoin ArrayJoin OrderByElement WindowDefinition WindowListElement DataType"""
)
"""Allowed nodes of the engine's syntax tree."""
LONGEST = 20_000
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
    |(?P<number>(?:0x[0-9A-Fa-f]+|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(?![A-Za-z0-9_.]))
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<text>'(?:[^'\\]|\\.|'')*')
    |(?P<mark>->|::|\|\||<=|>=|<>|!=|==|[()\[\],.+\-*/%=<>?:])""",
    re.VERBOSE | re.DOTALL,
)
_ENDS_FROM = frozenset(
    ("WHERE", "PREWHERE", "GROUP", "ORDER", "LIMIT", "HAVING", "UNION", "EXCEPT", "INTERSECT", "OFFSET", "WINDOW")
)


class Forbidden(StepscopeError):
    """The statement is not allowed; the message says which part."""


class Token(NamedTuple):
    """A piece of a statement."""

    kind: str
    text: str

    @property
    def word(self) -> str:
        """The word in capitals; nothing for other kinds."""
        return self.text.upper() if self.kind == "word" else ""


@contextmanager
def run_select(
    engine: Engine, statement: str, limits: Limits | None = None, stop: Stop | None = None
) -> Iterator[RowStream]:
    """Run a SELECT over the store's tables; Forbidden when it is anything else, EngineError when it fails.

    The engine reads any file with `file()` and fetches any `url()`, in read-only sessions too, so a list says what
    is allowed: one SELECT, our own tables, listed functions, no quoted names, no comments, no settings. The syntax
    tree of the engine's own parser must pass the same list.
    """
    statement = statement.strip().removesuffix(";").rstrip()
    check(statement)
    _check_tree(engine, statement)
    with engine.ask(statement, limits or Limits(), stop) as found:
        yield found


def check(statement: str) -> None:
    """Raise Forbidden unless every part of a statement is known to be harmless."""
    if len(statement) > LONGEST:
        raise Forbidden(f"the statement is longer than {LONGEST} characters")
    tokens = list(_tokens(statement))
    if not tokens or tokens[0].word != "SELECT":
        raise Forbidden("only SELECT is allowed")
    _check_words(tokens)
    _check_tables(tokens)


def _tokens(statement: str) -> Iterator[Token]:
    at = 0
    while at < len(statement):
        found = _TOKEN.match(statement, at)
        if found is None or found.lastgroup is None:
            raise Forbidden(f"{statement[at : at + 1]!r} is not allowed at position {at}")
        if statement.startswith(("--", "/*", "//"), at):
            raise Forbidden("comments are not allowed")
        if found.lastgroup != "space":
            yield Token(found.lastgroup, found[0])
        at = found.end()


def _check_words(tokens: list[Token]) -> None:
    """Check that function names are listed and that no word reaches outside the store."""
    for token, following in zip(tokens, [*tokens[1:], Token("end", "")], strict=True):
        if token.kind == "text" and following.kind == "text":
            raise Forbidden("two strings in a row are not allowed")
        if (token.word, following.word) == ("WITH", "TOTALS"):
            raise Forbidden("WITH TOTALS is not allowed: its row would be lost; use WITH ROLLUP")
        if token.kind != "word":
            continue
        if token.word in CLOSED:
            raise Forbidden(f"{token.text} is not allowed")
        if following.kind == "text" and token.word not in KEYWORDS:
            raise Forbidden(f"{token.text} before a string is not allowed")
        called = following.text == "("
        if called and token.word not in KEYWORDS and token.text.lower() not in FUNCTIONS:
            raise Forbidden(f"the function {token.text} is not allowed")


def _check_tables(tokens: list[Token]) -> None:
    """Check that tables are our own or subqueries, and that dots follow known names only."""
    expecting = [False]
    in_from = [False]
    aliases = _aliases(tokens)
    for index, token in enumerate(tokens):
        if expecting[-1] and not (token.text == "(" or token.text in PUBLIC):
            raise Forbidden(f"{token.text!r} is not a table of the store: {', '.join(PUBLIC)}")
        expecting[-1] = False
        before = tokens[index - 1].word if index else ""
        if token.text == "(":
            if before == "FROM" or before == "JOIN" or (in_from[-1] and tokens[index - 1].text == ","):
                _check_subquery(tokens, index)
            expecting.append(False)
            in_from.append(False)
        elif token.text == ")":
            if len(expecting) == 1:
                raise Forbidden("there is a `)` without a `(`")
            expecting.pop()
            in_from.pop()
        elif token.word == "FROM" or (token.word == "JOIN" and before != "ARRAY"):
            expecting[-1] = in_from[-1] = True
        elif token.word == "ARRAY" or token.word in _ENDS_FROM or token.word == "SELECT":
            in_from[-1] = False
        elif token.text == "," and in_from[-1]:
            expecting[-1] = True
        elif token.text == "." and index and tokens[index - 1].kind == "word":
            _check_dot(tokens, index, aliases)
        elif before == "IN":
            raise Forbidden("IN must be followed by a parenthesis")
    if len(expecting) > 1 or expecting[-1]:
        raise Forbidden("the statement ends too early")


def _check_subquery(tokens: list[Token], index: int) -> None:
    if index + 1 >= len(tokens) or tokens[index + 1].word not in ("SELECT", "FROM"):
        raise Forbidden("a parenthesis after FROM or JOIN must hold a SELECT")


def _aliases(tokens: list[Token]) -> set[str]:
    """Return the aliases defined in the statement: after AS, a table or a parenthesis."""
    found = set(PUBLIC)
    for before, token in pairwise(tokens):
        named = before.word == "AS" or before.text == ")" or before.text in PUBLIC
        if token.kind == "word" and named and token.word not in KEYWORDS:
            found.add(token.text)
    return found


def _check_dot(tokens: list[Token], index: int, aliases: set[str]) -> None:
    if tokens[index - 1].text not in aliases:
        raise Forbidden(f"{tokens[index - 1].text} is neither a table of the store nor a name given in the statement")


_KIND = re.compile(r"\w+")


def _check_tree(engine: Engine, statement: str) -> None:
    """Check the syntax tree of the engine's own parser: nodes, functions and tables must be listed."""
    try:
        tree = engine.tree(statement)
    except EngineError as error:
        if error.unavailable:
            raise
        raise Forbidden(f"the statement cannot be parsed: {error}") from error
    nodes = [_node(line) for line in (tree or "").split("\n") if line]
    for index, node in enumerate(nodes):
        kind, name = node.kind, node.name
        if kind not in NODES or (kind != "ExpressionList" and node.depth == 1):
            raise Forbidden(f"{kind} is not allowed here")
        if kind == "Function" and name.lower() not in FUNCTIONS | OPERATORS:
            raise Forbidden(f"the function {name} is not allowed")
        if kind == "Function" and name.lower() in ("cast", "arrayreduce"):
            _check_named(name.lower(), _arguments(nodes, index))
        if kind == "TableIdentifier" and name not in PUBLIC:
            raise Forbidden(f"{name!r} is not a table of the store")
        if kind == "Identifier" and name.partition(".")[0].upper() in CLOSED:
            raise Forbidden(f"{name!r} is not allowed")


class Node(NamedTuple):
    """A line of the engine's syntax tree."""

    depth: int
    kind: str
    name: str


def _node(line: str) -> Node:
    """Read `KIND NAME (alias ...) (children N)`; names are foreign text, so that each part is looked for once."""
    text = line.lstrip(" ")
    kind, _, name = text.partition(" ")
    depth = len(line) - len(text)
    if not _KIND.fullmatch(kind):
        return Node(depth, line, "")
    if name.endswith(")"):
        alias, children = name.find(" (alias "), name.rfind(" (children ")
        if 0 <= alias < len(name) - len(" (alias "):
            name = name[:alias]
        elif children >= 0 and name[children + len(" (children ") : -1].isdecimal():
            name = name[:children]
    return Node(depth, kind, name)


def _arguments(nodes: list[Node], index: int) -> list[Node]:
    """Return the arguments of a function, which are two levels below it."""
    found = []
    for node in nodes[index + 1 :]:
        if node.depth <= nodes[index].depth:
            break
        if node.depth == nodes[index].depth + 2:
            found.append(node)
    return found


def _check_named(function: str, arguments: list[Node]) -> None:
    """A type or an aggregate function that is named by a string: written out, and a known one.

    The states of aggregate functions are read without any check, so no string may become one.
    """
    place, known, what = (1, TYPES, "type") if function == "cast" else (0, REDUCERS, "function")
    named = arguments[place] if len(arguments) > place else Node(0, "", "")
    if named.kind != "Literal":
        raise Forbidden(f"{function} needs the name of a {what} as a literal")
    for word in re.findall(r"[^\W\d]\w*", named.name):
        if word.lower() not in known:
            raise Forbidden(f"the {what} {word} is not allowed in {function}")
