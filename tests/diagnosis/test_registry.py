"""Detectors: the built-in ones have one shape and a row in the docs; others are added by entry points."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from stepscope.diagnosis import detectors, registry
from stepscope.diagnosis.detector import Found, RunState
from stepscope.diagnosis.finding import Kind
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Log, Metric, Span
from tests.installed import install_package

PAGE = Path(__file__).parents[2] / "docs" / "diagnosis.md"
ACME = """
from stepscope.diagnosis.finding import Kind

LOW = Kind("low_reward", "WARN", "a bad policy", "Train longer.")


class LowReward:
    KINDS, ROLES, HELD_OUT, EACH = (LOW,), ("reward",), None, "value"

    def __init__(self, series, run):
        self.series = series

    def take(self):
        if self.series.value < -10:
            return LOW.about(self.series, self.series.step, "the reward is low", (-10, 10))
"""


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with a detector, installed as pip would leave it."""
    points = {"low": "acme_detectors:LowReward", "broken": "no_such_module:X"}
    install_package(tmp_path, monkeypatch, "stepscope.detectors", points, acme_detectors=ACME)
    registry.installed.cache_clear()
    yield
    registry.installed.cache_clear()


@pytest.mark.usefixtures("acme")
def test_an_installed_detector_is_used_and_a_broken_one_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An entry point adds a detector; one that cannot be loaded stops nothing."""
    diagnosis = Diagnosis()
    diagnosis.feed(0, Metric(1, 7, None, None, {"reward": -11.0}))
    assert [(each.kind, each.step, each.advice) for each in diagnosis.findings()] == [
        ("low_reward", 7, "Train longer.")
    ]
    assert "'broken' (no_such_module:X) cannot be loaded" in caplog.text


def test_a_built_in_detector_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module in the folder of detectors is found by being there: no list names it."""
    (tmp_path / "low_reward.py").write_text(ACME)
    monkeypatch.setattr(detectors, "__path__", [*detectors.__path__, str(tmp_path)])
    found = {each.__name__: each for each in registry.built_in()}
    assert registry.is_series(found["LowReward"])
    assert {each.__name__ for each in (*registry.SERIES, *registry.RUN)} <= found.keys()
    sys.modules.pop("stepscope.diagnosis.detectors.low_reward")


class _Raises:
    """A detector with a bug."""

    KINDS: ClassVar[tuple[Kind, ...]] = ()

    def __init__(self, run: RunState) -> None:
        self.run = run

    def span(self, rank: int, span: Span) -> Found:
        raise ZeroDivisionError("oops")


def test_a_detector_that_raises_is_dropped_and_named() -> None:
    """The diagnosis continues, and one finding names the failed detector."""
    diagnosis = Diagnosis(detectors=[_Raises])
    for step in range(3):
        diagnosis.feed(0, Span(step, 1, step, None, b"t" * 16, b"s" * 8, b"p" * 8, "forward"))
    (found,) = diagnosis.findings()
    assert found.kind == "detector_failed"
    assert "_Raises raised ZeroDivisionError('oops')" in found.text


LOW = Kind("low", "WARN", "", "")


class _Series:
    """A detector of rewards, of which tests replace a part."""

    KINDS: ClassVar[tuple[Kind, ...]] = (LOW,)
    ROLES: ClassVar[tuple[str, ...]] = ("reward",)
    HELD_OUT: ClassVar[bool | None] = None
    EACH: ClassVar[str] = "value"

    def __init__(self, *given: object) -> None:
        pass

    def take(self) -> object:
        return None


class _OfRun:
    """A detector of a whole run, of which tests replace a part."""

    KINDS: ClassVar[tuple[Kind, ...]] = (LOW,)

    def __init__(self, run: RunState) -> None:
        pass


def _cannot_start(self: object, *given: object) -> None:
    raise RuntimeError("no")


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"__init__": _cannot_start}, "RuntimeError('no')"),
        ({"take": lambda self: "text"}, "a detector returns findings, not str"),
        ({"take": lambda self: LOW.finding(5, 0)}, "a field of this finding has a wrong type"),
        ({"take": lambda self: LOW.finding("low", 0, step="7")}, "a field of this finding has a wrong type"),
        ({"take": lambda self: LOW.finding("low", 0, expected=(1,))}, "a field of this finding has a wrong type"),
        ({"log": None, "__init__": _cannot_start}, "RuntimeError('no')"),
        ({"log": lambda self, *given: 5}, "'int' object is not iterable"),
        ({"log": lambda self, *given: ["x"]}, "a detector returns findings, not str"),
    ],
)
def test_whatever_a_detector_does_wrong_the_diagnosis_goes_on(named: dict[str, Any], said: str) -> None:
    """One that cannot be made, or returns something else than findings, is dropped and named."""
    made = type("Wrong", (_OfRun if "log" in named else _Series,), named)
    diagnosis = Diagnosis(detectors=[made])
    for step in range(20):
        diagnosis.feed(0, Metric(step, step, None, None, {"reward": 1.0 + step % 3}))
        diagnosis.feed(0, Log(step, step, None, None, None, 9, "hello"))
    (found,) = diagnosis.findings()
    assert (found.kind, found.key) == ("detector_failed", "Wrong")
    assert said in found.text


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"KINDS": ("x",)}, "KINDS must be"),
        ({"ROLES": None}, "ROLES must be"),
        ({"HELD_OUT": 5}, "HELD_OUT must be"),
        ({"EACH": "step"}, "EACH must be"),
        ({"take": None}, "no method `take`"),
    ],
)
def test_a_detector_of_another_package_has_the_right_shape(named: dict[str, Any], said: str) -> None:
    """What is missing is named when it is loaded."""
    registry.check_shape(_Series)
    with pytest.raises(TypeError, match=said):
        registry.check_shape(type("Wrong", (_Series,), named))
    with pytest.raises(TypeError, match="neither ROLES"):
        registry.check_shape(type("Nothing", (), {"KINDS": (LOW,)}))
    with pytest.raises(TypeError, match="is a class"):
        registry.check_shape(lambda run: None)


@pytest.mark.parametrize("detector", registry.SERIES, ids=lambda each: each.__name__)
def test_a_series_detector_has_the_shape(detector: type) -> None:
    """It names its kinds, roles and rhythm, is made of a series and a run, and is in a file of its own."""
    assert detector.EACH in ("value", "block")  # type: ignore[attr-defined]
    assert list(inspect.signature(detector).parameters) == ["series", "run"]
    assert list(inspect.signature(detector.take).parameters) == ["self"]  # type: ignore[attr-defined]
    assert detector.ROLES  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", registry.kinds().values(), ids=lambda kind: kind.name)
def test_every_kind_has_its_words_and_a_row_in_the_docs(kind: Kind) -> None:
    """A kind has a cause and an advice, explains kinds that exist, and the page lists it."""
    assert kind.cause
    assert kind.advice.endswith(".")
    assert set(kind.explains) <= set(registry.KINDS)
    assert f"`{kind.name}`" in PAGE.read_text()
