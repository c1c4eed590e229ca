"""Filters, orders and page tokens that are malformed or odd, for MLflow's server and a hub."""

import base64
import json
from typing import Any

_KEYS = ("metrics.loss", "params.lr", "run_id", "start_time", "dataset.name")
_OPERATORS = (
    *("=", "!=", "<>", "==", ">", "LIKE", "like", "ILIKE", "~", "=~", "RLIKE", "!", "=>", "=<"),
    *("===", "<=>", "contains", "BETWEEN", "||", "->", "::", ":=", "^", "+", "IS"),
)
_VALUES = (
    *("1", "1.5", "-1", "'a'", '"a"', "`a`", "a", "'a", "a'", '"a', "''", "NULL", "true", "1e5", "1e+3"),
    *("1.e3", ".5e3", "0x1F", "1_000", "1f", "1,000", "1 000", "- 1", "--1", "1 + 1", "*", "?", "$1", "@x"),
    *("[1]", "{}", "now()", "a.b", "'it''s'", "'a' 'b'", "'a'::text", "'%' || 'a'", "lower('A')"),
    *("/*x*/ 1", "1 /*x*/", "'a'--b", "#a"),
)
_LISTS = (
    *("()", "('a'", "'a')", "(1,2)", "('a', 1)", "('a', NULL)", "(a)", "(`a`)", "((1))", "(('a','b'))"),
    *("(,)", "('a';'b')", "(1+1)", "(SELECT 1)", "('a' , )", "['a']", "'a'", "1", "a", ""),
)
_SHAPES = """
{a} AND|AND {a}|{a} OR {b}|OR {a}|{a} AND AND {b}|{a} AND NOT {b}|({a}) AND {b}|({a} AND {b})|{a} AND ({b})
{a},{b}|{a};;|{a} ; {b}|;|{a} && {b}|{a}AND {b}|{a} AND{b}|{a} XOR {b}|{a} AND 1|{a} AND 1=1|1=1|true|NULL
{a} ORDER BY x|{a} LIMIT 5|SELECT 1|WHERE {a}|{a}; DROP TABLE runs|{a} -- c|-- c|/* c */ {a}|{a} /* c */ AND {b}
/* c|{a} # c|CASE WHEN {a} THEN 1 END|(({a}))|({a}|{a})|)|(|()|''|``|`|'|"|metrics|metrics.|metrics. > 0
metrics .loss > 0|metrics. loss > 0|0 > metrics.loss|params.lr = params.lr|params.lr = "a'|params.lr = 'a"
metrics.loss > 0 > 1|metrics.loss > 0 AND < 1|metrics.loss BETWEEN 0 AND 1 AND {b}|params.lr LIKE 'a' ESCAPE '!'
params.lr AS x|params.lr x = 'a'|params.lr IS|params.lr IS NOT|params.lr IS NULL NULL|params.lr IS NULL = 1
params.lr ISNULL|params.lr NOT NULL|params.lr is  not   null|IS NULL|run_id IS NULL|foo.x IS NULL|'a' IS NULL
IN ('a')|= 'a'|LIKE 'a'|run_id NOT|run_id NOT IN|run_id in ('a')|run_id IN('a')|run_id NOT  IN ('a')|тест = 'x'
tags.тест = 'x'|tags.🚀 = 'x'|tags.`🚀` = 'x'|tags.`a`b` = 'x'|tags.`a.b`.c = 'x'|tags."a".b = 'x'
tags.'a b' = 'x'|tags.team = x'AB'|tags.team::text = 'a'|lower(tags.team) = 'a'|count(*) > 0
metrics.loss + 1 > 0|metrics.a-b > 0|metrics.a/b > 0|metrics.a@b > 0|metrics.top5% > 0|metrics.a=b > 0
metrics.a:b > 0|metrics.a#b > 0|metrics.1 > 0|metrics.1e5 > 0|params.1.5 = 'a'|tags. = 'x'|tags..a = 'x'
.a = 'x'|tags.a. = 'x'|tags.in = 'a'|tags.and = 'a'|tags.null = 'a'|tags.order = 'a'|tags.user = 'a'|date = 'a'
user = 'a'|type = 'a'|true = 'a'|NULL = 'a'|:a = 'x'|%s|metrics.loss ! = 0|metrics.loss > = 0|metrics.loss >> 0
metrics.loss =! 0|metrics.loss > NaN|metrics.loss > 5%|start_time > 1.5|start_time > 2020-01-01
start_time IN (1)|created = 'x'|Created > 0|`run name` = 'a'|"Run name" = 'a'|Status = 'x'|Metrics.loss > 0
`metrics`.loss > 0|models.x = 'y'|{a} AND foo = 'x'|{a} AND metrics.loss > 'a'
{a} AND params.lr > 1 AND metrics.x = 'a'|{a} AND params.lr =|eval loss > 0|tags.a b = 'c'
"""
A, B = "metrics.loss > 0", "params.lr = '0.1'"
ODD_FILTERS = list(
    dict.fromkeys(
        [
            *(f"{key} {operator} {value}" for key in _KEYS for operator in _OPERATORS for value in ("1", "'a'")),
            *(f"{key} {operator}" for key in _KEYS[:2] for operator in _OPERATORS),
            *(f"{key} = {value}" for key in _KEYS for value in _VALUES),
            *(f"{key} IN {value}".strip() for key in _KEYS for value in _LISTS),
            *(
                shape.replace("{a}", A).replace("{b}", B)
                for line in _SHAPES.strip().splitlines()
                for shape in line.split("|")
            ),
            *("\n", f"{A}\nAND\n{B}", f"{A}\u00a0AND {B}", "metrics.loss > 0\0", "params.lr = '" + "x" * 9000 + "'"),
        ]
    )
)
_OF_EXPERIMENTS = {
    "metrics.loss": "creation_time",
    "params.lr": "tags.owner",
    "run_id": "experiment_id",
    "start_time": "last_update_time",
    "dataset.name": "name",
}


def of_experiments(text: str) -> str:
    """Name fields of experiments in place of those of runs."""
    for key, name in _OF_EXPERIMENTS.items():
        text = text.replace(key, name)
    return text


_ORDERS = """
metrics.|metrics.1|metrics.1 DESC|metrics.*|metrics.a b DESC|metrics.a-b|metrics.a/b|metrics..loss|loss.|.loss
metrics.loss.|metrics.loss[0]|metrics.loss::float|metrics.loss up|metrics.loss ASC ASC|metrics.loss;
metrics.loss -- c|metrics.loss /* c */|metrics.loss "DESC"|metrics.loss `DESC`|metrics.loss 'DESC'
'metrics.loss'|"metrics.loss"|`metrics.loss`|`metrics`.loss|metrics.'|metrics.`a|metrics."a|'|`|1|1 ASC|1.5|*
count(x)|metrics.loss + 1|metrics.loss > 0|(metrics.loss)|-metrics.loss|NULL|true|ASC|DESC|desc desc|asc desc
metrics.loss NULLS LAST|NOT metrics.loss|SELECT 1|metrics.loss AND params.lr|timestamp|timestamp DESC|date
source|name|user|type|tags.in|tags.null|tags.order|tags.user DESC|tags.date|tags.`` DESC|тест|tags.тест DESC
tags.🚀|$x|:x|?|#|`Run Name` DESC|run name|Created DESC|attributes.created|attributes.`start_time` DESC
`attributes`.`start_time`|attr.status|run.status DESC|Start_time|dataset.foo|dataset.context DESC|models.x
metric .loss|metrics. loss|metrics.loss\tDESC|metrics.loss\nDESC|metrics.loss, |,|metrics.loss=ASC|metrics.loss#
params.lr as x|params.lr x|params.lr AS x DESC|metrics.loss IN ('a')|CASE WHEN 1 THEN 2 END|params.DESC
params.asc DESC|"start_time"|'start_time' DESC
"""
ODD_ORDERS = [*(text for line in _ORDERS.strip().splitlines() for text in line.split("|")), "", " "]


def _token(content: str | bytes) -> str:
    return base64.b64encode(content if isinstance(content, bytes) else content.encode()).decode()


_OFFSETS = (
    "0",
    '"0"',
    "-1",
    '"2"',
    "2.7",
    '"2.7"',
    '"x"',
    "null",
    "true",
    "[]",
    "[1]",
    '{"a":1}',
    "1e3",
    "9223372036854775807",
)
_OFFSETS += ("NaN", "Infinity", "9223372036854775808")
_TOKENS = [
    *("x", "zzz", "====", "!!!!", "é", "eyJ", "-_-_", "a b c", " "),
    *(_token(each) for each in ("[]", "1", "null", '"a"', "{", b"\xff\xfe", '{"Offset": 2}', '{"offset": 2, "x": 1}')),
    *(_token(f'{{"offset": {each}}}') for each in _OFFSETS),
    _token('{"offset": 2}').rstrip("=") + "x",
]
ODD_PAGES: list[dict[str, Any]] = [
    *({"page_token": each} for each in _TOKENS),
    *(
        {"max_results": each}
        for each in (0, -1, 1, 2.0, "5", "x", "", 49_999, 50_000, 50_001, 2**31 - 1, 2**31, 1e3, "0x5")
    ),
    *(
        {"max_results": json.loads("NaN")},
        {"filter": None},
        {"filter": 5},
        {"filter": True},
        {"filter": "\n"},
        {"filter": []},
    ),
    *({"order_by": each} for each in ([], None, "x", {"a": 1}, True, ["start_time", "created"], ["", "metrics.loss"])),
]
