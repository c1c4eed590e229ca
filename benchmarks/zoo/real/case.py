"""What a real training is, and the list of all: each registers itself with what must be found in it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.zoo.real.tape import Tape

Train = Callable[[Tape], None]


@dataclass(frozen=True, slots=True)
class Case:
    """A training, the kinds of which one must be found (none in a healthy one), and the step at which it goes wrong."""

    name: str
    family: str
    train: Train
    kinds: tuple[str, ...] = ()
    step: int | None = None
    window: int = 20
    says: tuple[str, ...] = ()
    """Words of which the finding must have one, in its text or its cause."""
    config: dict[str, Any] = field(default_factory=dict)


CASES: dict[str, Case] = {}


def fault(
    family: str,
    kinds: str,
    step: int | None = None,
    window: int = 20,
    says: str = "",
    config: dict[str, Any] | None = None,
) -> Callable[[Train], Train]:
    """Register a training that goes wrong, by family and function name; spaces separate kinds, and words."""

    def register(train: Train) -> Train:
        add(
            Case(
                f"{family}.{train.__name__}",
                family,
                train,
                tuple(kinds.split()),
                step,
                window,
                _words(says),
                config or {},
            )
        )
        return train

    return register


def healthy(family: str, config: dict[str, Any] | None = None) -> Callable[[Train], Train]:
    """Register a training in which nothing is wrong."""

    def register(train: Train) -> Train:
        add(Case(f"{family}.{train.__name__}", family, train, config=config or {}))
        return train

    return register


def add(case: Case) -> None:
    """Register a case."""
    assert case.name not in CASES, case.name
    CASES[case.name] = case


def _words(says: str) -> tuple[str, ...]:
    return tuple(says.split())
