"""Train and record the real zoo, diagnose the recordings, and count what was named and what was a false alarm."""

import argparse
import importlib
import os
import pkgutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.zoo.real import sets
from benchmarks.zoo.real.case import CASES, Case
from benchmarks.zoo.real.tape import Tape, compacted, load, save
from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis

TUNED = frozenset(("mlp", "chars", "gan", "grpo"))
"""Families that the detectors may be tuned on; the others are held out."""
BLIND = frozenset(
    (
        *("blind", "unseen", "novel", "fresh", "second", "third", "fourth", "fifth"),
        *("sixth", "seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth", "thirteenth", "fourteenth"),
        "fifteenth",
    )
)
"""Families that were written without regard to the detectors; nothing is tuned on them before their first figures."""
APART = {"transformers": "callbacks", "lightning": "callbacks", "gpu": "gpu"}
"""Families with figures of their own: recorded by a framework's callback, or by `benchmarks.zoo.gpu_curves`."""
SEED = int(os.environ.get("ZOO_SEED", "0"))
"""Added to the seeds of all trainings that are recorded: other weights, data order and noise."""
RECORDINGS = Path(__file__).parent / "recordings"


def families() -> list[str]:
    """Load every case and return their families."""
    for module in pkgutil.walk_packages(sets.__path__, f"{sets.__name__}."):
        importlib.import_module(module.name)
    return sorted({each.family for each in CASES.values()})


def half_of(family: str) -> str:
    """The half of a family: tuned on, held out, with figures of its own, or written without regard to the detectors."""
    if family in APART:
        return APART[family]
    return "tuned" if family in TUNED else family if family in BLIND else "held out"


def recorded(case: Case) -> Tape:
    """Train and record."""
    import torch

    torch.set_num_threads(1)
    seed = torch.manual_seed
    torch.manual_seed = lambda given: seed(given + SEED)  # type: ignore[assignment]
    tape = Tape(case.config)
    tape.truth = truth_of(case)
    try:
        case.train(tape)
    finally:
        torch.manual_seed = seed
    return tape


def diagnosed(tape: Tape) -> list[Finding]:
    """Diagnose a recording."""
    diagnosis = Diagnosis(world=1)
    for record in tape.records():
        diagnosis.feed(0, record, 1, "host")
    return diagnosis.findings()


def names(truth: dict[str, Any], finding: Finding) -> bool:
    """Whether a finding above INFO has one of the kinds, the step and one of the words."""
    if finding.kind not in truth["kinds"] or finding.severity == "INFO":
        return False
    step = truth["step"]
    if step is not None and (finding.step is None or abs(finding.step - step) > truth["window"]):
        return False
    text = " ".join((finding.text, finding.cause, finding.advice, finding.span or "", *finding.symptoms))
    return not truth["says"] or any(word in text for word in truth["says"])


def truth_of(case: Case) -> dict[str, Any]:
    """What a case must be found to have, as it is kept with the recording."""
    if not case.kinds:
        return {}
    return {"kinds": case.kinds, "step": case.step, "window": case.window, "says": case.says}


TIMED = frozenset(("data_stall", "throughput_loss", "slow_span", "checkpoint_growth"))


def _is_timed(tape: Tape) -> bool:
    """Whether spans are kept: in healthy trainings and those with a fault of time."""
    return not tape.truth or not TIMED.isdisjoint(tape.truth["kinds"])


def record(names: list[str]) -> None:
    """Train the cases of these families and write their recordings."""
    for family in families():
        if names and family not in names:
            continue
        tapes = {}
        for case in (each for each in CASES.values() if each.family == family):
            begun = time.perf_counter()
            tapes[case.name] = recorded(case)
            print(f"{case.name} {time.perf_counter() - begun:.1f} s", file=sys.stderr, flush=True)
        save(
            RECORDINGS / f"{family}.xz",
            {name: compacted(each, timed=family in APART or _is_timed(each)) for name, each in tapes.items()},
        )


@dataclass(slots=True)
class Score:
    """What became of the recordings of a half."""

    faults: int = 0
    named: int = 0
    others: int = 0
    healthy: int = 0
    alarmed: int = 0
    alarms: int = 0
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, truth: dict[str, Any], found: list[Finding]) -> None:
        """Count the findings of one recording."""
        loud = [each for each in found if each.severity != "INFO"]
        right = [each for each in loud if truth and names(truth, each)]
        if truth:
            self.faults += 1
            self.named += bool(right)
            self.others += len(loud) - len(right)
        else:
            self.healthy += 1
            self.alarms += len(loud)
            self.alarmed += bool(loud)
        if truth and not right:
            self.notes.append(f"MISSED {name} at {truth['step']}: {' '.join(truth['kinds'])}")
        if len(loud) > len(right):
            self.notes += [_line("+" if each in right else "-", name, each) for each in loud]

    def __str__(self) -> str:
        """The counts in a sentence."""
        return (
            f"{self.named} of {self.faults} faults named, {self.others} other findings; "
            f"{self.alarms} false alarms in {self.alarmed} of {self.healthy} healthy runs"
        )


def score(half: str) -> Score:
    """Diagnose the recordings of a half."""
    total = Score()
    for path in sorted(RECORDINGS.glob("*.xz")):
        if half_of(path.stem) == half:
            for name, tape in load(path).items():
                total.add(name, tape.truth, diagnosed(tape))
    return total


def _line(mark: str, name: str, found: Finding) -> str:
    return f"  {mark} {name}: {found.severity} {found.kind} step {found.step}: {found.text}"


def main() -> None:
    """Record or report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", nargs="*", help="train and record these families; all if none are named")
    parser.add_argument(
        "--halves",
        nargs="*",
        default=["tuned"],
        help="tuned, 'held out', blind, unseen, novel, fresh, second, third, fourth, fifth, sixth, ..., eleventh, ...",
    )
    parser.add_argument("--quiet", action="store_true", help="print counts only")
    args = parser.parse_args()
    if args.record is not None:
        record(args.record)
    else:
        for half in args.halves:
            found = score(half)
            print("" if args.quiet else "\n".join(found.notes))
            print(f"{half}: {found}")


if __name__ == "__main__":
    main()
