"""Records that JSON can spell and MessagePack cannot."""

import math
from typing import Any

from stepscope.hub.intake.intake_journal import IntakeBatch, SequenceNumbers, pack_parts, pack_whole
from stepscope.hub.intake.intake_journal import _decode as decode
from stepscope.model.ports import Writer
from stepscope.model.records import Event, Log, Metric, Record

WRITER = Writer(id="w", run="r", project="p")


def packed(*records: Record) -> Any:
    """Pack records and read them again."""
    (one,), bad = pack_parts("tinker", WRITER, list(records), SequenceNumbers())
    assert not bad
    return decode(one)


def test_large_integers_and_half_pairs_are_kept_as_text() -> None:
    """In names, attributes, nested values and bodies; the rest of the record stays as it is."""
    odd = {"id": 2**100, "list": [-(2**70), "\ud800x"], "fine": 2**64 - 1, "\udc00": {"deep": 2**65}}
    found = packed(
        Event(1, None, None, None, None, 9, "name\ud800", odd, 2**80),
        Log(1, None, None, None, None, 9, {"n": 2**90}, {"a": "é"}),
        Metric(1, 2, None, None, {"loss\ud800": 2**70, "far": 10**400, "near": 1.5}),
    )
    event, log, metric = found.records
    assert (event.name, event.body) == ("name?", str(2**80))
    assert event.attrs == {
        "id": str(2**100), "list": [str(-(2**70)), "?x"], "fine": 2**64 - 1, "?": {"deep": str(2**65)}
    }  # fmt: skip
    assert (log.body, log.attrs) == ({"n": str(2**90)}, {"a": "é"})
    assert metric.values == {"loss?": float(2**70), "far": math.inf, "near": 1.5}


def test_a_time_that_does_not_fit_spoils_only_its_record() -> None:
    """A record whose time cannot be packed is counted; the others are stored."""
    good, bad = Event(1, None, None, None, None, 9, "good\ud800"), Event(2**70, None, None, None, None, 9, "bad")
    parts, lost = pack_parts("tinker", WRITER, [good, bad], SequenceNumbers())
    assert ([decode(part).records[0].name for part in parts], lost) == (["good?"], 1)
    whole, lost = pack_whole(IntakeBatch("tinker", WRITER, 7, [good, bad]))
    assert whole is not None
    assert ([record.name for record in decode(whole).records], lost) == (["good?"], 1)
