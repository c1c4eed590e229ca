"""Loading that takes longer is named on a machine where every step may be preempted."""

import random

import pytest

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.names import SPAN_STEP
from stepscope.model.records import Metric, Span

AT = 150


def found_in(seed: int, more: float, spans: bool, crowded: float = 0.3) -> list[Finding]:
    """Diagnose steps that compute for 20 ms, load for 2 ms and more from a step on, and are preempted now and then."""
    made, rng, now, ids = Diagnosis(), random.Random(seed), 10**12, 0
    for step in range(300):
        made.feed(0, Metric(now, None, None, "system", {"psi/cpu": 0.8}))
        often = crowded if step < AT else 2 * crowded

        def took(base: float, often: float = often) -> int:
            preempted = rng.expovariate(1 / 0.08) if rng.random() < often else 0.0
            return int(1e9 * (base * rng.lognormvariate(0, 0.2) + preempted))

        loads, computes = took(0.002 + (more if step >= AT else 0.0)), took(0.02)
        ids += 2
        root = ids.to_bytes(8, "big")
        if spans:
            inner = (ids + 1).to_bytes(8, "big")
            made.feed(0, Span(now, loads, step, None, b"t" * 16, inner, root, "train.data_load"))
            made.feed(0, Span(now, loads + computes, step, None, b"t" * 16, root, None, SPAN_STEP))
        else:
            made.feed(0, Span(now + loads, computes, step, None, b"t" * 16, root, None, SPAN_STEP))
        now += loads + computes
    return [each for each in made.findings() if each.severity != "INFO"]


@pytest.mark.parametrize("spans", [True, False], ids=["in a span", "between steps"])
def test_slow_loading_is_named_with_its_step(spans: bool) -> None:
    """It is 50 ms slower while any step may be preempted for longer, and more of them are."""
    for seed in range(5):
        (found,) = found_in(seed, 0.05, spans)
        assert found.kind in ("throughput_loss", "data_stall", "input_bound")
        assert abs((found.step or 0) - AT) <= 12
        assert "waits" in found.cause


@pytest.mark.parametrize("spans", [True, False], ids=["in a span", "between steps"])
def test_a_machine_that_gets_busier_is_left_alone(spans: bool) -> None:
    """Steps are preempted twice as often, and nothing else changed."""
    assert [found_in(seed, 0.0, spans) for seed in range(8)] == [[]] * 8
