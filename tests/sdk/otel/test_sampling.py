"""Which spans of libraries are recorded, by OpenTelemetry's variables."""

import pytest
from opentelemetry import trace
from opentelemetry.context import Context

from stepscope.model.records import Span
from stepscope.sdk.otel.current_run import CurrentRun
from stepscope.sdk.otel.tracer import ALWAYS, Sampler, TracerProvider, invalid_sampler, read_sampler
from stepscope.sdk.outcomes import Outcomes
from stepscope.testing import recorded

UNSAMPLED = trace.SpanContext(5, 6, True, trace.TraceFlags(0))


def test_the_sampler_is_chosen_by_its_variables() -> None:
    """`always_on` records below an unsampled parent, and says so; a ratio decides by the trace id, once per trace."""
    with recorded(otel=True) as recording:
        current = CurrentRun()
        current.run = recording.run
        always = TracerProvider(current, {"OTEL_TRACES_SAMPLER": "always_on"}).get_tracer("a")
        kept = always.start_span("kept", trace.set_span_in_context(trace.NonRecordingSpan(UNSAMPLED), Context()))
        kept.end()
        never = TracerProvider(current, {"OTEL_TRACES_SAMPLER": "always_off"}).get_tracer("a")
        assert not never.start_span("never").is_recording()
        half = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"}
        ratio = TracerProvider(current, half).get_tracer("a")
        roots = [ratio.start_span("root", Context()) for _ in range(200)]
        for root in roots:
            child = ratio.start_span("child", trace.set_span_in_context(root, Context()))
            assert child.is_recording() is root.is_recording()
            assert root.is_recording() is (root.get_span_context().trace_id & (2**64 - 1) < 2**63)
            child.end(), root.end()
    assert [span.parent_id for span in recording.of(Span) if span.name == "kept"] == [(6).to_bytes(8, "big")]
    assert kept.get_span_context().trace_flags.sampled
    assert {root.is_recording() for root in roots} == {False}
    assert 50 < sum(span.name == "root" for span in recording.of(Span)) < 150


@pytest.mark.parametrize(
    ("name", "argument", "expected"),
    [
        ("", "", ALWAYS),
        ("parentbased_always_on", "", ALWAYS),
        ("jaeger_remote", "", ALWAYS),
        ("traceidratio", "0.25", Sampler(2**62, False)),
        ("traceidratio", "most", Sampler(2**64, False)),
        ("parentbased_traceidratio", "7", Sampler(2**64, True)),
        ("always_off", "", Sampler(0, False)),
    ],
)
def test_names_and_ratios_are_read(name: str, argument: str, expected: Sampler) -> None:
    """What OpenTelemetry does not define is the default."""
    assert read_sampler({"OTEL_TRACES_SAMPLER": name, "OTEL_TRACES_SAMPLER_ARG": argument}) == expected


def test_variables_that_are_not_understood_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenTelemetry ignores them with a warning; so does a run, once it starts."""
    given = {
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "most",
        "OTEL_SPAN_EVENT_COUNT_LIMIT": "-1",
        "OTEL_SPAN_LINK_COUNT_LIMIT": "5",
        "OTEL_ATTRIBUTE_COUNT_LIMIT": " ",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    warnings: list[str] = []
    monkeypatch.setattr(Outcomes, "notice_text", lambda _, text: warnings.append(text))
    with recorded(otel=True):
        pass
    assert [text for text in warnings if text.startswith("OTEL_")] == [
        "OTEL_TRACES_SAMPLER_ARG='most' is ignored: expected a number from 0 to 1",
        "OTEL_SPAN_EVENT_COUNT_LIMIT='-1' is ignored: expected an integer of 0 or more",
    ]
    assert "expected one of always_on," in invalid_sampler({"OTEL_TRACES_SAMPLER": "jaeger_remote"})[0]
    assert invalid_sampler({"OTEL_TRACES_SAMPLER": "always_off", "OTEL_TRACES_SAMPLER_ARG": "any"}) == []
