"""What is done to records before they are taken."""

from collections import Counter

from stepscope.hub.limits import Limits
from stepscope.hub.scrub import CUT, TOO_MANY, TOO_MANY_KEYS, Scrubber
from stepscope.model.records import Event, Link, Log, Metric, Span, SpanEvent

SMALL = Limits(attributes=3, text=10, long_text=20, keys=2)


def test_secrets() -> None:
    """Secrets are masked wherever a record carries attributes, also nested."""
    span = Span(
        1, 1, None, None, bytes(16), bytes(8), None, "s",
        attrs={"api_key": "x1", "a": {"password": "x2"}},
        events=(SpanEvent(1, "e", {"token": "x3", "n": [{"secret": "x4"}]}),),
        links=(Link(bytes(16), bytes(8), {"cookie": "x5"}),),
    )  # fmt: skip
    log = Log(1, None, None, None, None, 9, {"authorization": "x6"}, {"max_tokens": 5})
    kept = Scrubber(Limits()).scrub("r", [span, log], Counter())
    assert not [text for text in ("x1", "x2", "x3", "x4", "x5", "x6") if text in repr(kept)]
    assert "'max_tokens': 5" in repr(kept)


def test_bounds() -> None:
    """Long texts are cut, attributes beyond the limit go, and both are counted."""
    lost: Counter[str] = Counter()
    records = [
        Event(1, None, None, None, None, 9, "e", {str(index): index for index in range(5)}, "y" * 50),
        Log(1, None, None, None, None, 9, ["z" * 50], {"a": "x" * 50, "b": ["x" * 50]}),
    ]
    event, log = Scrubber(SMALL).scrub("r", records, lost)
    assert isinstance(event, Event)
    assert isinstance(log, Log)
    assert (len(event.attrs), len(event.body)) == (3, 20)
    assert (log.body, log.attrs) == (["z" * 10], {"a": "x" * 10, "b": ["x" * 10]})
    assert lost == {TOO_MANY: 2, CUT: 4}


def test_keys() -> None:
    """New metric keys are refused once a run has too many; known ones and other runs are not."""
    lost: Counter[str] = Counter()
    scrubber = Scrubber(SMALL)

    def taken(run: str | None, key: str) -> bool:
        return bool(scrubber.scrub(run, [Metric(1, 1, None, None, {key: 1.0})], lost))

    assert [taken("r", key) for key in "abcab"] == [True, True, False, True, True]
    assert taken("other", "c")
    assert taken(None, "d")
    assert lost == {TOO_MANY_KEYS: 1}
