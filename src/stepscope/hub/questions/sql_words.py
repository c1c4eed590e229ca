"""The SQL that users may write: keywords, functions, types, and nodes of the engine's syntax tree."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


KEYWORDS = _words(
    """SELECT DISTINCT FROM WHERE PREWHERE GROUP BY ORDER HAVING LIMIT OFFSET WITH TIES ROLLUP CUBE FINAL
    AS AND OR NOT IN GLOBAL LIKE ILIKE BETWEEN IS NULL CASE WHEN THEN ELSE END ASC DESC NULLS FIRST LAST ON USING
    JOIN INNER LEFT RIGHT FULL OUTER CROSS ANY ALL SEMI ANTI ASOF ARRAY UNION EXCEPT INTERSECT INTERVAL SECOND MINUTE
    HOUR DAY WEEK MONTH YEAR OVER PARTITION ROWS RANGE UNBOUNDED PRECEDING FOLLOWING CURRENT ROW WINDOW EXISTS
    TRUE FALSE"""
)
"""What may stand before a parenthesis or a string without being a function."""

CLOSED = _words(
    """SETTINGS FORMAT INTO OUTFILE INFILE INSERT UPDATE DELETE ALTER CREATE DROP TRUNCATE RENAME EXCHANGE ATTACH
    DETACH OPTIMIZE SYSTEM SET USE KILL GRANT REVOKE SHOW DESCRIBE EXPLAIN BACKUP RESTORE WATCH CHECK MOVE EXECUTE
    INFORMATION_SCHEMA DEFAULT STEPSCOPE APPLY REPLACE COLUMNS VIEW DICTIONARY DATABASE TABLE FUNCTION SAMPLE QUALIFY
    INTERPOLATE TEMPORARY RECURSIVE MATERIALIZED VALUES TRIM EXTRACT CURRENT_USER USER COLLATE"""
)
"""Words that lead out of a SELECT over our tables; none of them is a column of ours."""

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
"""Functions that only compute, in small letters."""

REDUCERS = _COMBINED - frozenset(name for name in _COMBINED if name.endswith("merge"))
"""Aggregate functions that `arrayReduce` may apply, in small letters."""

TYPES = _words(
    """bool uint8 uint16 uint32 uint64 uint128 uint256 int8 int16 int32 int64 int128 int256 float32 float64 string
    fixedstring uuid ipv4 ipv6 date date32 datetime datetime64 decimal decimal32 decimal64 decimal128 array tuple
    nullable lowcardinality utc"""
)
"""Words of a type that a value may be cast to, in small letters."""

OPERATORS = _words(
    """lambda exists globalin globalnotin isnotdistinctfrom isdistinctfrom notilike arraydot singlevalueornull
    nullin notnullin"""
)
"""Functions that the parser makes of operators."""

NODES = _words(
    """SelectWithUnionQuery SelectQuery SelectIntersectExceptQuery ExpressionList Identifier TableIdentifier Literal
    Function Asterisk QualifiedAsterisk Subquery TablesInSelectQuery TablesInSelectQueryElement TableExpression
    TableJoin ArrayJoin OrderByElement WindowDefinition WindowListElement DataType"""
)
"""Nodes of the engine's syntax tree that such a SELECT is made of."""
