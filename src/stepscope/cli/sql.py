"""`stepscope sql`: a SELECT over the store, through the hub that has the home open or its engine in this process."""

import argparse
import csv
import sys
from typing import Any

from stepscope.cli import text
from stepscope.cli.options import Commands, add_command, home_of, integer
from stepscope.hub.client import HubClient, open_client
from stepscope.model import formatting
from stepscope.model.errors import ConfigError
from stepscope.wire.plain import dumps

ROWS = 1000
_WIDEST = 60


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "sql", "read the store with a SELECT; without one, list its tables", command)
    made.add_argument(
        "sql", nargs="?", metavar="SELECT", help="a statement in ClickHouse's dialect; `-`: standard input"
    )
    made.add_argument("--rows", type=integer(1), default=ROWS, metavar="N", help=f"at most N rows ({ROWS})")
    made.add_argument("--csv", action="store_true", help="print CSV")


def command(args: argparse.Namespace) -> int:
    """Print the rows."""
    statement = sys.stdin.read() if args.sql == "-" else args.sql
    if statement is not None and not statement.strip():
        raise ConfigError("the statement is empty: give a SELECT, or nothing for a list of the tables")
    with open_client(home_of(args)) as client:
        if client.problem:
            print(f"stepscope: the newest records are missing from this output: {client.problem}", file=sys.stderr)
        if statement is None:
            return _tables(client, as_json=args.json)
        answer = client.post("/api/sql", {"sql": statement, "rows": args.rows})
    _print(answer, args)
    return 0


def _print(answer: dict[str, Any], args: argparse.Namespace) -> None:
    names = [column["name"] for column in answer["columns"]]
    if args.json:
        print(dumps(answer))
    elif args.csv:
        out = csv.writer(sys.stdout, lineterminator="\n")
        out.writerow(names)
        out.writerows(answer["rows"])
    else:
        marks = [">" if _is_number(column["type"]) else "" for column in answer["columns"]]
        head = [mark + text.clean(name) for mark, name in zip(marks, names, strict=True)]
        rows = [[text.cut(_cell(cell), _WIDEST) for cell in row] for row in answer["rows"]]
        print("\n".join(text.table(head, rows) if rows else ["no rows"]))
    for line in (*answer.get("hints", ()), *([f"only {args.rows} rows are shown: --rows N"] if answer["more"] else ())):
        print(text.clean(f"stepscope: {line}"), file=sys.stderr)


def _is_number(type: str) -> bool:
    return any(word in type for word in ("Int", "Float", "Decimal")) and "Array" not in type


def _cell(cell: Any) -> str:
    """A value of a row; numbers in full, as they are stored."""
    return formatting.MISSING if cell is None else cell if isinstance(cell, str) else dumps(cell, indent=None)


def _tables(client: HubClient, *, as_json: bool) -> int:
    tables = client.get("/api/sql/tables")["tables"]
    if as_json:
        print(dumps(tables))
        return 0
    for table in tables:
        print(f"{text.paint(table['name'], 'bold')}  {formatting.amount(table['rows'], 'row')}  {table['text']}")
        columns = ", ".join(f"{column['name']} {column['type']}" for column in table["columns"])
        print(f"  {text.cut(columns, text.width() - 2)}")
    return 0
