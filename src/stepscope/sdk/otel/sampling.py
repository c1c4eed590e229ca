"""Which spans of libraries are recorded: OpenTelemetry's samplers, chosen by its variables."""

from collections.abc import Mapping
from dataclasses import dataclass

from opentelemetry import trace

_LOW = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Sampler:
    """Decides for a root by its trace id, and below a parent as that was decided, unless it is not `parent_based`."""

    bound: int = _LOW + 1
    """Traces are sampled whose id, in its low 64 bits, is below this."""
    parent_based: bool = True

    def samples(self, parent: trace.SpanContext | None, trace_id: int) -> bool:
        """Tell whether a span is to be recorded; `parent` is None for a root."""
        if self.parent_based and parent is not None:
            return parent.trace_flags.sampled
        return trace_id & _LOW < self.bound


ALWAYS = Sampler()
"""OpenTelemetry's default: every root, and what is below a sampled span."""


def read_sampler(env: Mapping[str, str]) -> Sampler:
    """Read OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG; an unknown name or ratio is the default, as specified."""
    name = env.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    kind = name.removeprefix("parentbased_")
    bound = {"always_on": _LOW + 1, "always_off": 0, "traceidratio": _ratio(env)}.get(kind)
    return ALWAYS if bound is None else Sampler(bound, kind != name)


def _ratio(env: Mapping[str, str]) -> int:
    try:
        ratio = float(env.get("OTEL_TRACES_SAMPLER_ARG", ""))
    except ValueError:
        ratio = 1.0
    return round(ratio * (_LOW + 1)) if 0.0 <= ratio <= 1.0 else _LOW + 1
