"""The configuration that detectors compare with: wherever it is nested, however it is written, whenever it is known."""

from typing import Any

import pytest

from stepscope.diagnosis.detector import RunState
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.names import EVENT_CONFIG, EVENT_STARTED
from stepscope.model.records import Event, Metric

COSINE = {"optim.lr_scheduler": "cosine", "trainer/max_steps": "400"}


def event(name: str, attrs: dict[str, Any], time: int = 0) -> Event:
    """An event that describes a run."""
    return Event(time, None, None, None, None, 9, name, attrs)


@pytest.mark.parametrize(
    ("config", "rate"),
    [
        ({"lr": 0.1}, 0.1),
        ({"optim": {"lr": 0.1, "max_lr": 9}}, 0.1),
        ({"optim.learning-rate": "3e-4"}, 3e-4),
        ({"train/Max_LR": 0.2, "eval/lr": 5}, 0.2),
        ({"lr": "auto"}, None),
        ({"lr": True}, None),
        ({"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {"lr": 1}}}}}}}}}, None),
    ],
)
def test_settings_are_found_as_people_write_them(config: dict[str, Any], rate: float | None) -> None:
    """Nested, dotted, with slashes, as text; not those of evaluation, and not in any depth."""
    assert RunState(config=config).setting("lr", "learning_rate", "max_lr") == rate


def flat_rate(*events: Event) -> list[str]:
    """The kinds of findings of a run whose learning rate stays as it is."""
    diagnosis = Diagnosis()
    for each in events:
        diagnosis.feed(0, each)
    for step in range(400):
        diagnosis.feed(0, Metric(step, step, None, None, {"lr": 0.1}))
    return [each.kind for each in diagnosis.findings()]


def test_a_configuration_that_comes_later_counts() -> None:
    """A start that is sent again with params, and settings that are logged after it, reach the detectors."""
    empty = event(EVENT_STARTED, {"config": {}})
    assert flat_rate(empty) == []
    assert flat_rate(empty, event(EVENT_CONFIG, COSINE)) == ["lr_schedule"]
    assert flat_rate(empty, event(EVENT_STARTED, {"config": COSINE})) == ["lr_schedule"]
    assert flat_rate(event(EVENT_STARTED, {"config": COSINE}), event(EVENT_CONFIG, {"optim.lr_scheduler": "wsd"})) == []
    assert flat_rate(event(EVENT_CONFIG, {"args": {"lr_scheduler_type": "linear", "max_steps": -1}})) == []


def test_the_lowest_rank_of_the_newest_attempt_says_what_counts() -> None:
    """Another rank adds what is missing only; a restart with other settings counts."""
    state = RunState()
    state.configure(1, {"lr": 1, "vocab": 10})
    state.configure(0, {"lr": 2})
    state.configure(1, {"lr": 3, "steps": 5})
    assert (state.setting("lr"), state.setting("vocab"), state.setting("steps")) == (2, 10, 5)
    state.attempt = 2
    state.configure(1, {"lr": 4})
    assert state.setting("lr") == 4
