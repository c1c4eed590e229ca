"""Interference: how much a loop of GIL-releasing operations slows down under 100 records per step."""

from __future__ import annotations

import statistics

from benchmarks.measures.training_loop import RECORDS_PER_STEP, STEP_MS, calibrate
from benchmarks.results import OURS, Options, Progress, Result
from benchmarks.spawn import ChildError, Conversation, scratch

NAME = "interference"
METHOD = (
    f"A step of about {STEP_MS} ms is a row of PBKDF2 calls, which release the GIL and touch no memory, of the "
    f"stated length. {RECORDS_PER_STEP} records are logged per step: 10 times a span and nine `log` of two "
    "metrics, evenly spread, as the phases of a step would; in one case instead one by one, each alone, which "
    "finds the caches cold. A round is three turns in the same process, in changing order: off, on, and off "
    "again as control; a turn is 4 steps of warm-up and 20 measured. Off, nothing is called at "
    "all; no run of ours is open and none of its threads lives, while a peer stays open and idle. Every "
    "5 rounds there is a new process, because a process can be a few percent faster than another from birth. "
    "Shown is the median over rounds of the ratio to off. The true difference of the control is nothing: "
    "rounds go on, 15 at least and 45 at most, until the control's is within half of the budget, and what it "
    "then shows is the noise of the machine. Peers are measured at one length, 3 rounds each."
)
OPERATIONS_MS = (0.05, 0.5, 2.3)
OFF, ON, CONTROL = "off", "on", "control"
ROUNDS_PER_PROCESS = 5
GROUPS = 10
PEERS_AT_MS, PEERS = 0.5, ("trackio", "wandb", "mlflow async", "otel")
CALM = {"mean_pct": 0.5, "p99_pct": 2.5}
Rows = dict[str, list[dict[str, float]]]


def measure(options: Options, progress: Progress) -> list[Result]:
    """Run the loop for each operation length, ours at all of them, peers at one."""
    least, most = (5, 10) if options.quick else (15, 45)
    results = []
    if OURS in options.subjects:
        for length in OPERATIONS_MS:
            results += _one(OURS, length, GROUPS, (least, most), progress)
        results += _one(OURS, PEERS_AT_MS, RECORDS_PER_STEP, (least, most), progress)
    for peer in PEERS:
        if peer in options.subjects:
            rows = _one(peer, PEERS_AT_MS, GROUPS, (2, 2) if options.quick else (3, 3), progress)
            results += [row for row in rows if row.subject == peer]
    return results


def _one(subject: str, length: float, groups: int, bounds: tuple[int, int], progress: Progress) -> list[Result]:
    case = f"operations of {length} ms" + (", one by one" if groups == RECORDS_PER_STEP else "")
    taken: Rows = {OFF: [], ON: [], CONTROL: []}
    shape = calibrate(length) | {"groups": groups}
    try:
        while len(taken[ON]) < bounds[0] or (len(taken[ON]) < bounds[1] and not _calm(taken)):
            _one_process(subject, shape, min(ROUNDS_PER_PROCESS, bounds[1] - len(taken[ON])), taken)
            noise = _against(taken[CONTROL], taken[OFF])
            progress(
                f"interference: {subject}, {case}, {len(taken[ON])} of {bounds[0]} to {bounds[1]} rounds "
                f"(noise: mean {noise['mean_pct']:+.2f} %, p99 {noise['p99_pct']:+.2f} %)"
            )
    except ChildError as error:
        progress(f"interference: {subject} SKIPPED: {error}")
        return [Result(NAME, case, subject, skipped=str(error))]
    names = {OFF: OFF, CONTROL: CONTROL, ON: subject}
    return [Result(NAME, case, name, _against(taken[turn], taken[OFF])) for turn, name in names.items()]


def _one_process(subject: str, shape: dict[str, int], rounds: int, taken: Rows) -> None:
    """Let a new process take some rounds, after one that does not count."""
    with scratch() as folder:
        talk = Conversation("benchmarks.measures.training_loop", {"subject": subject, **shape}, folder)
        try:
            for number in range(rounds + 1):
                shift = (number + len(taken[ON])) % 3
                for turn in ((OFF, ON, CONTROL) * 2)[shift : shift + 3]:
                    row = talk.ask({"on": turn == ON, "warm": 4, "steps": 20})
                    if number:
                        taken[turn].append(row)
        finally:
            talk.close()


def _calm(taken: Rows) -> bool:
    """Tell whether the control differs little enough from what it is a copy of."""
    noise = _against(taken[CONTROL], taken[OFF])
    return all(abs(noise[stat]) <= bound for stat, bound in CALM.items())


def _against(rows: list[dict[str, float]], off: list[dict[str, float]]) -> dict[str, float]:
    def change(stat: str) -> float:
        pairs = zip(rows, off, strict=True)
        return (statistics.median(row[stat] / other[stat] for row, other in pairs) - 1) * 100

    return {
        "rounds": float(len(rows)),
        "step_ms": statistics.median(row["step_mean_ms"] for row in rows),
        "mean_pct": change("step_mean_ms"),
        "p99_pct": change("op_p99_ms"),
        "cpu_pct": change("cpu_s"),
        "op_p50_pct": change("op_p50_ms"),
        "op_p99_ms": statistics.median(row["op_p99_ms"] for row in rows),
        "step_p95_ms": statistics.median(row["step_p95_ms"] for row in rows),
    }
