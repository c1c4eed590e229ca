"""What the OTLP codec refuses: a whole request that cannot be read, or single items, counted by reason."""

from dataclasses import dataclass, field

from stepscope.model.errors import StepscopeError
from stepscope.wire.otlp.names import Signal

_EXAMPLES = 3
_NOUNS: dict[Signal, str] = {"traces": "spans", "metrics": "data points", "logs": "log records"}


class BadRequest(StepscopeError, ValueError):
    """The bytes are no OTLP request of this signal; the only exception that decoding raises."""


@dataclass(slots=True)
class Rejections:
    """What of one request was not taken, items and parts of items, for `partial_success` and the hub's counters."""

    signal: Signal
    reasons: dict[str, int] = field(default_factory=dict)
    """How many were refused, by reason."""
    examples: dict[str, list[str]] = field(default_factory=dict)
    """The first few of each."""
    warnings: dict[str, int] = field(default_factory=dict)
    """How often something was left out of an item that was taken, by what it was."""

    def warn(self, reason: str, name: str = "", count: int = 1) -> None:
        """Count what was left out of items that are taken; the first few names are remembered."""
        self.warnings[reason] = self.warnings.get(reason, 0) + count
        self._remember(reason, name)

    def add(self, reason: str, name: str = "", count: int = 1) -> None:
        """Count items refused for one reason; the first few names are remembered."""
        self.reasons[reason] = self.reasons.get(reason, 0) + count
        self._remember(reason, name)

    def _remember(self, reason: str, name: str) -> None:
        examples = self.examples.setdefault(reason, [])
        if name and len(examples) < _EXAMPLES and name not in examples:
            examples.append(name[:80])

    @property
    def count(self) -> int:
        """How many items were refused."""
        return sum(self.reasons.values())

    @property
    def message(self) -> str:
        """Say what was refused or left out and why, in one line; empty when nothing was."""
        noun = _NOUNS[self.signal]
        said = []
        if self.reasons:
            said.append(f"{self.count} {noun} rejected: {self._explained(self.reasons)}")
        if self.warnings:
            said.append(f"{noun} taken without what is malformed in them: {self._explained(self.warnings)}")
        return "; ".join(said)

    def _explained(self, reasons: dict[str, int]) -> str:
        return "; ".join(self._explain(reason, count) for reason, count in reasons.items())

    def _explain(self, reason: str, count: int) -> str:
        examples = ", ".join(self.examples[reason])
        return f"{reason} ({count}: {examples})" if examples else f"{reason} ({count})"
