"""The budget: read the ratios that must hold and judge a run's results by them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results import OURS, Result
from benchmarks.subjects import PEERS

BEST_PEER = "best peer"


@dataclass(frozen=True, slots=True)
class Budget:
    """One promise; exactly one of the bounds is set."""

    says: str
    of: str
    against: str = ""
    at_least: float | None = None
    at_most: float | None = None

    @property
    def measure(self) -> str:
        """The measurement this promise rests on."""
        return self.of.split("/")[0]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A promise with what was measured; `ok` is False also when a number is missing."""

    budget: Budget
    ours: float | None
    theirs: float | None
    peer: str
    value: float | None
    ok: bool


def load(path: Path) -> list[Budget]:
    """Read the budget file; a wrong entry is a TypeError naming the field."""
    return [Budget(**entry) for entry in tomllib.loads(path.read_text())["budget"]]


def judge(budgets: Iterable[Budget], results: list[Result]) -> list[Verdict]:
    """Hold every budget against the results."""
    numbers = {
        (f"{result.measure}/{result.case}/{stat}", result.subject): value
        for result in results
        for stat, value in result.stats.items()
    }
    return [_judge(budget, numbers) for budget in budgets]


def _judge(budget: Budget, numbers: dict[tuple[str, str], float]) -> Verdict:
    ours = numbers.get((budget.of, OURS))
    peer = _cheapest(budget.of, numbers) if budget.against == BEST_PEER else budget.against
    theirs = numbers.get((budget.of, peer))
    if ours is None or (budget.against and theirs is None):
        return Verdict(budget, ours, theirs, peer, None, False)
    if budget.at_least is not None:
        value = (theirs or 0.0) / max(ours, 1e-9)
        return Verdict(budget, ours, theirs, peer, value, value >= budget.at_least)
    value = ours / theirs if theirs else ours
    return Verdict(budget, ours, theirs, peer, value, value <= (budget.at_most or 0.0))


def _cheapest(of: str, numbers: dict[tuple[str, str], float]) -> str:
    known = [(numbers[of, peer], peer) for peer in PEERS if (of, peer) in numbers]
    return min(known)[1] if known else BEST_PEER
