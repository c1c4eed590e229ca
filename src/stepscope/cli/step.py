"""`stepscope step`: print everything about one step of a run, on all ranks."""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from stepscope.cli import text
from stepscope.cli.hub_runs import open_run
from stepscope.cli.options import LATEST_HELP, Commands, add_command, home_of, integer, print_answer
from stepscope.cli.record_lines import clock, pairs
from stepscope.model import formatting
from stepscope.model.errors import ConfigError
from stepscope.model.records import FIRST_STEP

UNUSUAL = 2
"""Values of this level are marked."""


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "step", "show everything about one step of a run", command)
    made.add_argument("run", nargs="?", default="latest", metavar="RUN", help=LATEST_HELP)
    made.add_argument("step", metavar="N", type=integer(FIRST_STEP), help="the step")
    made.add_argument(
        "--rank",
        type=integer(),
        metavar="R",
        help="only this rank, with its spans in detail; default: all side by side",
    )
    made.add_argument("--attempt", type=integer(1), metavar="A", help="the attempt; default: the newest")


def command(args: argparse.Namespace) -> int:
    """Print the step."""
    with open_run(home_of(args), args.run) as (client, run):
        chosen = {**_page(args)} if args.attempt is None else {**_page(args), "attempt": args.attempt}
        view = client.get("/api/runs/{run}/steps/{step}", run=run, step=args.step, **chosen)
        found = client.get("/api/runs/{run}/findings", run=run)["findings"]
        name = client.get("/api/runs/{run}", run=run)["name"]
    view = {**view, "name": name, **nearest(view, found)}
    if args.rank is not None:
        view = of_rank(view, args.rank)
    print_answer(args, view, (text.cut(line, text.width()) for line in lines(view, args.rank)))
    return 0


def _page(args: argparse.Namespace) -> dict[str, int]:
    """Ask for one rank, or for as many as text can show; JSON has all."""
    if args.rank is not None:
        return {"limit": 1, "rank": args.rank}
    return {} if args.json else {"limit": LISTED}


def nearest(view: dict[str, Any], findings: list[dict[str, Any]]) -> dict[str, Any]:
    """The nearest steps before and after with an anomaly, of the step's own data and of findings."""
    here = view["step"]
    places = [
        {"step": each["step"], "reason": each["kind"].replace("_", " ")}
        for each in findings
        if each["step"] is not None and not each["muted"]
    ]
    found: dict[str, Any] = {}
    for field, sign in (("previous_anomaly", -1), ("next_anomaly", 1)):
        known = [each for each in (view[field], *places) if each is not None and (each["step"] - here) * sign > 0]
        found[field] = min(known, key=lambda each: abs(each["step"] - here), default=None)
    return found


def of_rank(view: dict[str, Any], rank: int) -> dict[str, Any]:
    """The data of one rank at a step; ConfigError when it recorded nothing there."""
    parts = ("ranks", "open_spans", "logs", "alerts", "system")
    found = {part: [each for each in view[part] if each["rank"] == rank] for part in parts}
    metrics = [
        {**metric, "values": [value for value in metric["values"] if value["rank"] == rank]}
        for metric in view["metrics"]
    ]
    kept = [metric for metric in metrics if metric["values"]]
    if not kept and not any(found.values()):
        count = view["all_ranks"]["count"]
        known = f"it has records of {count} rank{'s' * (count > 1)}" if count else "it has no records at all"
        raise ConfigError(f"step {view['step']} of {view['run']} has no records of rank {rank}; {known}")
    return {**view, **found, "metrics": kept}


def lines(view: dict[str, Any], rank: int | None = None) -> Iterator[str]:
    """Format a step as text."""
    begin = view["begin"]
    run = f"{view['name']} ({view['run']})" if view.get("name") else view["run"]
    yield text.clean(f"{run}  step {view['step']}  {text.moment(int(begin * 1e9)) if begin else 'no records'}")
    yield f"previous {formatting.ordinal(view['previous'])}, next {formatting.ordinal(view['next'])}{_anomalies(view)}"
    if view["slow"]:
        yield text.clean(f"slow: {view['slow']['text']}")
    yield from _metrics(view)
    yield from _spans(view, rank)
    yield from _records("alerts", view["alerts"])
    if view.get("samples"):
        counted = ", ".join(f"{count} in {table}" for table, count in view["samples"].items())
        yield text.clean(f"samples: {counted} (stepscope samples {view['run']} --step {view['step']})")
    yield from _records("logs and events", view["logs"])
    yield from _system(view["system"])


def _anomalies(view: dict[str, Any]) -> str:
    found = [(word, view[f"{word}_anomaly"]) for word in ("previous", "next")]
    notes = [f"{word} anomaly at {where['step']} ({where['reason']})" for word, where in found if where]
    return "".join(f", {each}" for each in notes)


def _metrics(view: dict[str, Any]) -> Iterator[str]:
    rows = []
    for metric in view["metrics"]:
        for value in metric["values"]:
            z = value["z"]
            deviation = "" if z is None else formatting.signed(z, 3)
            shown = [text.value_of(metric["key"], value[field], metric["unit"]) for field in ("value", "mean", "delta")]
            rows.append([metric["key"], str(value["rank"]), *shown, deviation, "!" * (value["level"] >= UNUSUAL)])
    if rows:
        head = ("METRIC", ">RANK", ">VALUE", f">MEAN OF {view['window']}", ">DELTA", ">SIGMA", "")
        yield ""
        yield from text.table(head, rows)
        if view["all_ranks"]["next"] is not None:
            count = view["all_ranks"]["count"]
            yield f"{LISTED} of {count} ranks, the odd and the slow ones first: --rank R shows another"


def _spans(view: dict[str, Any], rank: int | None) -> Iterator[str]:
    lanes = view["ranks"]
    if rank is None:
        yield from side_by_side(lanes, view["all_ranks"]["count"])
        yield from critical_path(lanes)
    for lane in lanes:
        if rank is not None and lane["rank"] == rank:
            yield from in_detail(lane)
    others = [number for number in view["attempts"] if number != view["attempt"]]
    if others:
        also = ", ".join(map(str, others))
        yield f"this is attempt {view['attempt']}; the step was done in {also} too: --attempt {others[0]}"
    if view["open_spans"]:
        yield ""
        yield f"still open ({len(view['open_spans'])})"
        yield from (f"  {line}" for line in open_spans(view["open_spans"]))


def open_spans(spans: list[dict[str, Any]]) -> Iterator[str]:
    """The spans that are still open, one line for each name with all ranks."""
    ranks: dict[str, list[int]] = {}
    for span in spans:
        ranks.setdefault(span["name"], []).append(span["rank"])
    for name, found in ranks.items():
        every = sorted(set(found))
        yield text.clean(f"{name} on rank{'s' * (len(every) > 1)} {', '.join(map(str, every))}")


def _records(title: str, records: list[dict[str, Any]]) -> Iterator[str]:
    if not records:
        return
    yield ""
    yield f"{title} ({len(records)})" if len(records) > SHOWN else title
    for record in records[-SHOWN:]:
        message = " ".join(str(part) for part in (record["name"], record["body"]) if part is not None)
        front = f"  {clock(int((record['time'] or 0) * 1e9))} r{record['rank']} {record['severity']}"
        yield text.clean(f"{front} {message} {pairs(record['attrs'])}".rstrip())


def _system(readings: list[dict[str, Any]]) -> Iterator[str]:
    if not readings:
        return
    parts = ("value", "min", "max")
    rows = [
        [each["key"], str(each["rank"]), *(text.value_of(each["key"], each[part], each["unit"]) for part in parts)]
        for each in readings
    ]
    yield ""
    yield from text.table(("MACHINE", ">RANK", ">LAST", ">MIN", ">MAX"), rows)


LISTED = 16
"""How many ranks are asked for, the odd and the slow ones first."""
BESIDE = 8
"""How many ranks are shown side by side: the slowest ones."""
SHOWN = 20
PATH = 6

Lane = dict[str, Any]


def side_by_side(lanes: Sequence[Lane], count: int = 0) -> Iterator[str]:
    """One row for each span of the tree, one column for each rank; `!` is slow, `*` is the rank that ends last.

    `count` is how many ranks there are, where not all are given.
    """
    count = max(count, len(lanes))
    shown = sorted(sorted(lanes, key=lambda lane: -lane["duration_ms"])[:BESIDE], key=lambda lane: lane["rank"])
    if not shown:
        return
    rows = merged(shown)
    head = [f">r{lane['rank']}{'*' * lane['critical']}" for lane in shown]
    left = f" (the {BESIDE} slowest of {count} ranks)" if count > BESIDE else ""
    body = []
    for path, cells in rows.items():
        usual = next((cell["usual_ms"] for cell in cells.values() if cell["usual_ms"] is not None), None)
        took = [_cell(cells.get(lane["rank"])) for lane in shown]
        body.append(["  " * (len(path) - 1) + path[-1][0], *took, ms(usual)])
    yield ""
    yield from text.table((f"SPANS{left}", *head, ">USUAL"), body)


def merged(lanes: Sequence[Lane]) -> dict[tuple[tuple[str, int], ...], dict[int, dict[str, Any]]]:
    """The spans of all lanes by their path in the tree: names from the root down, numbered where they repeat."""
    order: dict[tuple[tuple[str, int], ...], dict[int, dict[str, Any]]] = {}
    for lane in lanes:
        above: list[tuple[str, int]] = []
        seen: dict[tuple[tuple[tuple[str, int], ...], str], int] = {}
        for span in lane["spans"]:
            above = above[: span["depth"]]
            place = (tuple(above), span["name"])
            seen[place] = seen.get(place, 0) + 1
            above.append((span["name"], seen[place]))
            order.setdefault(tuple(above), {})[lane["rank"]] = span
    return dict(sorted(order.items(), key=lambda row: _first(row[0], order)))


def _first(path: tuple[tuple[str, int], ...], rows: dict[Any, dict[int, dict[str, Any]]]) -> list[Any]:
    """The index of a row: after its parent, in the order in which spans began."""
    begins = []
    for depth in range(1, len(path) + 1):
        cells = rows.get(path[:depth], {})
        begins.append((min((cell["offset_ms"] for cell in cells.values()), default=0.0), path[depth - 1]))
    return begins


def _cell(span: dict[str, Any] | None) -> str:
    if span is None:
        return formatting.MISSING
    mark = "E" if span["status"] == "error" else "!" if span["slow"] else ""
    return ms(span["duration_ms"]) + mark


def critical_path(lanes: Sequence[Lane]) -> Iterator[str]:
    """The critical path on the rank that ends last."""
    for lane in lanes:
        if lane["critical"]:
            waited = [span for span in lane["spans"] if span["critical_ms"]]
            heavy = sorted(waited, key=lambda span: -span["critical_ms"])
            message = ", ".join(f"{span['name']} {ms(span['critical_ms'])}" for span in heavy[:PATH])
            if message:
                yield f"critical path of rank {lane['rank']}: {message}"
            return


def in_detail(lane: Lane) -> Iterator[str]:
    """One rank: start, duration, usual duration and critical time of each span."""
    yield ""
    head = (f"SPANS OF RANK {lane['rank']}", ">AT", ">TOOK", ">USUAL", ">CRITICAL", "")
    yield from text.table(head, [_span(span) for span in lane["spans"]])


def _span(span: dict[str, Any]) -> list[str]:
    notes = formatting.ratio(span["ratio"]) if span["slow"] else ""
    if span["status"] == "error":
        notes = f"{notes} ERROR {span['message']}".strip()
    times = [ms(span[field]) for field in ("offset_ms", "duration_ms", "usual_ms")]
    return ["  " * span["depth"] + span["name"], *times, ms(span["critical_ms"] or None), notes]


def ms(milliseconds: float | None) -> str:
    """Format a duration."""
    return formatting.duration(None if milliseconds is None else milliseconds / 1e3)
