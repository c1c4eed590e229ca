"""Real trainings that go wrong, or do not: they train, are recorded, and are diagnosed from their records."""

from benchmarks.zoo.real.journaled import REAL, diagnosed, findings_in, is_named

__all__ = ["REAL", "diagnosed", "findings_in", "is_named"]
