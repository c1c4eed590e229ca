"""Invalid input is recorded as far as possible or counted, and never raises."""

import argparse
import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepscope
from stepscope.model.errors import ConfigError
from stepscope.model.records import FIRST_STEP, LAST_STEP, Alert, Event, Log, Metric, Span
from stepscope.model.redaction import MASK, redact
from stepscope.sdk import launch, settings
from stepscope.sdk.attributes import CUT, clean
from stepscope.testing import Recording, recorded


class Mute:
    """An object that cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError("no words")

    __repr__ = __str__


@dataclass
class Settings:
    """A configuration as programs have it."""

    lr: float = 0.1
    api_key: str = "sk-1"


def own(recording: Recording, kind: type) -> list[Any]:
    """The records of a kind that the test itself made."""
    made = [record for record in recording.records if isinstance(record, kind)]
    return [record for record in made if not str(getattr(record, "name", "")).startswith(("train.run", "stepscope"))]


def test_dicts_that_hold_themselves() -> None:
    """Recursive metrics and attributes are cut at a depth."""
    itself: dict[str, Any] = {"loss": 1.0}
    for key in "abc":
        itself[key] = itself
    again: list[Any] = []
    again.extend([again] * 20)
    with recorded() as recording:
        recording.run.log(itself, step=1)
        recording.run.event("odd", {"list": again})
    row = next(record for record in recording.records if isinstance(record, Metric) and record.step == 1)
    assert row.values["loss"] == row.values["a/loss"] == 1.0
    assert recording.run.outcomes.snapshot()["rejected/value/too many dicts"] > 0
    assert len(own(recording, Event)) == 1
    assert CUT in str(clean({"list": again}))


def test_words_of_any_kind() -> None:
    """Names, keys and messages that are no texts, or cannot be, become texts; every record can be read again."""
    with recorded() as recording:
        run = recording.run
        run.event("milestone", "reached 100")  # type: ignore[arg-type]
        run.event(Mute(), {Mute(): Mute()})  # type: ignore[arg-type, dict-item]
        run.alert("loud", Mute(), Mute())  # type: ignore[arg-type]
        run.log({"loss": 1.0}, step=3, axis=5)  # type: ignore[arg-type]
        for name in (None, 5, Mute()):
            with run.span(name):  # type: ignore[arg-type]
                pass
        with run.step(4, name=Mute()):  # type: ignore[arg-type]
            run.log({"loss": 2.0})
    assert [event.attrs for event in own(recording, Event)][:1] == [{"value": "reached 100"}]
    assert [event.name for event in own(recording, Event)] == ["milestone", "<Mute>"]
    assert [alert.message for alert in own(recording, Alert)] == ["<Mute>"]
    assert [span.name for span in own(recording, Span)] == ["span", "5", "<Mute>", "train.step"]
    axes = {row.values["loss"]: row.axis for row in own(recording, Metric) if "loss" in row.values}
    assert axes == {1.0: "5", 2.0: "<Mute>"}


def test_halves_of_characters() -> None:
    """A surrogate in a text costs that character, not the record."""
    logger = logging.getLogger("halves")
    logger.propagate = False  # pytest's own handlers could not pass it on
    with recorded(capture_logs=True) as recording:
        recording.run.event("path", {"path": "/\udcff", "size": 3})
        with recording.run.span("work\ud800", file="\udcff"):
            pass
        logger.warning("half \ud800")
    (event,) = own(recording, Event)
    assert event.attrs == {"path": "/?", "size": 3}
    assert [(span.name, span.attrs["file"]) for span in own(recording, Span)] == [("work?", "?")]
    assert [line.body for line in own(recording, Log)] == ["half ?"]


def test_steps_beyond_64_bits() -> None:
    """A step that cannot be written is counted, and what is recorded inside is kept without it."""
    with recorded() as recording:
        with recording.run.step(2**70):
            recording.run.event("inside")
        recording.run.log({"a": 1.0, "b": 2.0, "c": 3.0}, step="x")  # type: ignore[arg-type]
    assert [event.step for event in own(recording, Event)] == [None]
    counts = recording.run.outcomes.snapshot()
    assert counts["rejected/value/step is out of range"] == 1
    assert counts["rejected/value/step must be an integer, got str"] == 3


@pytest.mark.parametrize("step", [-(2**63) - 1, -(2**63), -(2**63) + 1, np.int64(-(2**63)), 2**63, 2**64 - 1, 2**64])
def test_steps_that_no_store_takes(step: Any) -> None:
    """Steps outside the range of the store are counted where they are given, not refused by the hub later."""
    with recorded() as recording:
        run = recording.run
        run.log({"loss": 1.0}, step=step)
        run.event("inside", step=step)
        run.alert("loud", step=step)
        run.measure({"loss": 1.0}, step=step)
        with run.step(step):
            pass
        run.log({"loss": 2.0}, step=FIRST_STEP)
        run.log({"loss": 3.0}, step=LAST_STEP)
    assert [(row.step, row.values) for row in own(recording, Metric) if "loss" in row.values] == [
        (FIRST_STEP, {"loss": 2.0}),
        (LAST_STEP, {"loss": 3.0}),
    ]
    assert {record.step for kind in (Event, Alert, Span) for record in own(recording, kind)} == {None}
    assert run.outcomes.snapshot()["rejected/value/step is out of range"] == 5


@pytest.mark.parametrize("seconds", [math.inf, -math.inf, math.nan, 10**400, "x", -1])
def test_times_no_clock_can_count(seconds: Any, tmp_path: Path) -> None:
    """A timeout of any kind ends `flush` and `finish` as it should."""
    run = stepscope.init(project="odd", home=tmp_path, probes=False, otel=False, capture_logs=False)
    run.log({"loss": 1.0})
    run.flush(seconds)
    assert run.finish(timeout=seconds, wait=seconds) is not None


def test_numpy_and_settings_in_attributes() -> None:
    """Numbers of numpy stay numbers; objects of settings are looked into, so that their secrets are masked."""
    found = redact(clean({
        "score": np.float32(0.5),
        "count": np.int64(3),
        "long": np.longdouble(1.5),
        "row": np.array([1, 2]),
        "settings": Settings(),
        "arguments": argparse.Namespace(lr=1, password="p"),
    }))  # fmt: skip
    assert found == {
        "score": 0.5,
        "count": 3,
        "long": "1.5",
        "row": [1, 2],
        "settings": {"lr": 0.1, "api_key": "[redacted]"},
        "arguments": {"lr": 1, "password": "[redacted]"},
    }


def test_secrets_by_other_names() -> None:
    """Keys of services, headers and passwords in words people use; arguments in Hydra's way."""
    given = {"openai_key": 1, "db_pwd": 2, "auth_header": 3, "sort_key": 4, "primary_key": 5}
    assert [key for key, value in redact(clean(given)).items() if value == MASK] == [
        "openai_key",
        "db_pwd",
        "auth_header",
    ]
    safe = redact(["train.py", "api_key=sk-X", "+model.password=Y", "lr=3", "--token", "Z"])
    assert safe == ["train.py", "api_key=[redacted]", "+model.password=[redacted]", "lr=3", "--token", "[redacted]"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"project": "\ud800"},
        {"home": "a\0b"},
        {"flush_interval": 10**400},
        {"flush_interval": 1e10},
        {"exit_timeout": 1e10},
    ],
)
def test_settings_that_cannot_be(wrong: dict[str, Any]) -> None:
    """`init` refuses settings that would fail later."""
    with pytest.raises(ConfigError):
        settings.load(wrong, {})


@pytest.mark.parametrize("text", [b"{enabled: maybe}", b"{name: \xff}", b"{5: 1}", b"{sinks: 5, otlp_endpoint: e}"])
def test_files_that_cannot_be(tmp_path: Path, text: bytes) -> None:
    """A wrong file is refused, and named."""
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"telemetry: " + text)
    with pytest.raises(ConfigError, match=r"mine\.yaml|sinks"):
        settings.load({}, {"STEPSCOPE_CONFIG": str(path)})


def test_a_rank_that_is_none() -> None:
    """Our own variable must be a number; those of launchers are not ours to judge."""
    with pytest.raises(ConfigError, match="STEPSCOPE_RANK"):
        launch.detect({"STEPSCOPE_RANK": "x"})
    assert launch.detect({"RANK": "x", "SLURM_PROCID": "2"}).rank == 2


class Unbound:
    """A proxy that is bound to nothing, and says so whatever it is asked for."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("outside of any context")

    @__class__.setter
    def __class__(self, value: Any) -> None:
        raise RuntimeError("outside of any context")


def test_proxies_and_numbers_that_every_call_refuses() -> None:
    """An unbound proxy, or a number that no float holds, is counted by live settings, uses and exceptions."""
    with recorded() as recording:
        run = recording.run
        for odd in (Unbound(), 10**400, -(10**400)):
            run.live(odd=odd)
            run.use(odd)
            run.exception(odd)  # type: ignore[arg-type]
            run.checkpoint(odd, made_of=odd)
            run.artifact(odd, name="odd")
            run.sample(prompt=odd)
        counted = run.outcomes.snapshot()
    assert counted["rejected/value/not a finite number, a short text, True or False"] == 1
    assert counted["rejected/value/error must be an exception, got int"] == 2
