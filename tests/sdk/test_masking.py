"""Masking is done by the flusher: no call looks for secrets, and none is written."""

import logging
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest
from opentelemetry import trace

import stepscope
from stepscope.journal import layout
from stepscope.model import redaction
from stepscope.model.records import ALERT, EVENT, LOG, METRIC, SPAN
from stepscope.model.redaction import MASK
from stepscope.sdk.masking import Unmasked, mask_record
from stepscope.testing import read_run
from stepscope.wire import frames

SECRET = "Zq7kV9xTr4"
ADDRESS = f"postgres://bob:{SECRET}@db/"


def record_everything(run: stepscope.Run) -> None:
    """Put the address into every text of every call."""
    logging.getLogger("masking").warning("at %s", ADDRESS, extra={ADDRESS: ADDRESS, "api_key": SECRET})
    run.event(ADDRESS, {"at": ADDRESS, ADDRESS: 1, "deep": {"password": SECRET, "list": ["--token", SECRET]}})
    run.alert("down", message=ADDRESS, at=ADDRESS)
    run.exception(ValueError(ADDRESS))
    run.tag(ADDRESS)
    run.note(ADDRESS)
    run.measure({"m": 1.0}, {"at": ADDRESS})
    with run.span(ADDRESS, at=ADDRESS, api_key=SECRET) as span:
        span.set_attribute("where", ADDRESS)
        span.set_attributes({"there": ADDRESS})
        span.add_event(ADDRESS, {"at": ADDRESS})
        span.add_link(span.get_span_context(), {"at": ADDRESS})
        span.set_status(trace.StatusCode.ERROR, ADDRESS)
    with run.span("plain") as span:
        span.update_name(ADDRESS)
    with run.step(1) as step:
        step.set_attribute("at", ADDRESS)


@pytest.fixture
def logged(tmp_path: Path) -> Any:
    """A run that captures logs."""
    logging.getLogger("masking").propagate = False
    with stepscope.init(home=tmp_path, probes=False, otel=False, capture_logs=True, config={"at": ADDRESS}) as run:
        yield run


def test_no_call_looks_for_secrets(logged: stepscope.Run) -> None:
    """In the thread that calls, nothing of the module that finds secrets runs."""
    seen: list[str] = []

    def look(frame: FrameType, event: str, given: Any) -> None:
        if frame.f_code.co_filename == redaction.__file__:
            seen.append(frame.f_code.co_name)

    sys.setprofile(look)
    try:
        record_everything(logged)
    finally:
        sys.setprofile(None)
    assert seen == []


def test_no_secret_is_written(logged: stepscope.Run) -> None:
    """Whatever text of whatever call holds it, the journal has the mask in its place."""
    record_everything(logged)
    assert logged.finish(timeout=300)
    folders = [
        layout.writer_folder(logged.home, logged.id, name) for name in layout.list_writers(logged.home, logged.id)
    ]
    written = b"".join(path.read_bytes() for folder in folders for path in layout.list_segments(folder))
    assert SECRET.encode() not in written
    assert written.count(MASK.encode()) > 20
    assert logged.outcomes.dropped() == 0


def test_names_the_flusher_has_seen_are_not_marked_again(run: stepscope.Run) -> None:
    """The second span with the same name and attributes is written as it is packed."""
    for turn in range(2):
        with run.span("masking.known", mode="fast", batch=turn):
            pass
        kinds = [type(packed) for packed in run.recorder.buffer if b"masking.known" in packed]
        assert not turn or kinds in ([], [bytes])
        assert run.flush(300)
    spans = [record for record in read_run(run.home, run.id) if getattr(record, "name", "") == "masking.known"]
    assert [span.attrs for span in spans] == [{"mode": "fast", "batch": 0}, {"mode": "fast", "batch": 1}]


RECORDS = (
    (METRIC, 1, 2, None, "trainer", {"password_loss": 0.5, "nan": float("nan")}, {"at": "x"}, ["gauge", "", "", True]),
    (METRIC, 1, 2, None, None, {"token": 2**63}),
    (SPAN, 1, None, None, "axis", b"t" * 16, b"s" * 8, None, "name", 1, 2, "message", {"a": [1, b"x"]}, [], [], "", 1),
    (LOG, 1, None, None, None, None, 9, {"body": [None, True]}, {}, "logger", 5, 0),
    (EVENT, 1, 2, "epoch", b"t" * 16, b"s" * 8, 9, "name", {"a": 1.5}),
    (ALERT, 1, 2, None, None, None, 13, "name", "message", {}),
)


@pytest.mark.parametrize("record", RECORDS, ids=[f"{record[0]}-{len(record)}" for record in RECORDS])
def test_what_holds_no_secret_stays_as_it_is(record: tuple[Any, ...]) -> None:
    """Numbers, ids, keys of metrics and texts without a secret come back byte for byte."""
    packed = msgspec.msgpack.encode(record)
    masked = mask_record(Unmasked(packed))
    assert masked == packed
    assert type(masked) is bytes
    frames.unpack_record(masked)
