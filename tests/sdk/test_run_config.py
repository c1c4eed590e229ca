"""The configuration of a run: what is assigned is recorded, whichever way."""

import copy
import json
import pickle
from typing import Any

import pytest

import stepscope
from stepscope.journal.run_summary import read_run
from stepscope.sdk.off import OffRun


def recorded(run: stepscope.Run) -> dict[str, Any]:
    """The configuration as the journal has it."""
    assert run.flush(300)
    return read_run(run.home, run.id).config


def test_what_is_assigned_is_recorded(run: stepscope.Run) -> None:
    """As an item, by `update`, `setdefault` and `|=`, and as a whole; a removed key is None."""
    run.config["x"] = 1
    run.config.update({"y": 2}, z=3)
    assert run.config.setdefault("x", 5) == 1
    run.config.setdefault("w", {"lr": 0.1})
    config = run.config
    config |= {"v": 5}
    assert recorded(run) == {"x": 1, "y": 2, "z": 3, "w": {"lr": 0.1}, "v": 5}
    assert run.config.pop("y") == 2
    assert run.config.pop("y", None) is None
    del run.config["z"]
    assert recorded(run) == {"x": 1, "y": None, "z": None, "w": {"lr": 0.1}, "v": 5}
    run.config = {"api_key": "sk-1"}
    assert run.config == {"api_key": "sk-1"}
    assert recorded(run)["api_key"] == "[redacted]"


def test_attributes_are_keys(run: stepscope.Run) -> None:
    """`run.config.lr = 0.1`, as W&B's users write it, is recorded and read back; also in a disabled run."""
    for each in (run, OffRun()):
        each.config.lr = 0.1
        each.config.gone = 1
        del each.config.gone
        assert each.config.lr == 0.1
        assert each.config == {"lr": 0.1}
        assert not hasattr(each.config, "other")
    assert recorded(run) == {"lr": 0.1, "gone": None}


def test_a_change_inside_a_value_is_recorded_at_the_end(run: stepscope.Run) -> None:
    """`run.config["optimizer"]["lr"] = 0.2` is part of the configuration when the run is finished."""
    run.config["optimizer"] = {"lr": 0.1}
    run.config["optimizer"]["lr"] = 0.2
    run.finish(timeout=300)
    assert read_run(run.home, run.id).config == {"optimizer": {"lr": 0.2}}


def test_it_is_a_dict(run: stepscope.Run) -> None:
    """It can be printed, encoded, copied and pickled as one; changes of a copy are not recorded."""
    run.config.update(a=1)
    assert json.loads(json.dumps(run.config)) == {"a": 1}
    for other in (copy.deepcopy(run.config), pickle.loads(pickle.dumps(run.config)), dict(run.config)):
        other["b"] = 2
    assert recorded(run) == {"a": 1}


def test_what_cannot_be_a_config_is_rejected(run: stepscope.Run, caplog: pytest.LogCaptureFixture) -> None:
    """Assigning anything but a dict, or updating with it, is counted and warned of once; a disabled run takes all."""
    run.config = 5  # type: ignore[assignment]
    assert run.flush(300).rejected_keys == {"config": "must be a dict, got int"}
    run.config.update(5, lr=0.1)
    run.config.update([1, 2])
    run.config |= "text"
    run.config.update({"a": 1}, {"b": 2})
    assert run.flush(300).rejected_keys["config.update"] == "must be a dict, got int"
    assert run.config == {"lr": 0.1}
    said = [each.message for each in caplog.records if "'config.update'" in each.message]
    assert len(said) == 1
    assert sum(number for name, number in run.outcomes.snapshot().items() if "must be a dict" in name) == 5
    off = OffRun()
    off.config.update(5)
    off.config["x"] = 1
    assert off.config == {"x": 1}
    off.config = {"y": 2}


def test_rejected_keys_are_named(run: stepscope.Run) -> None:
    """The status of `finish` names what was not recorded and why, also in words, and the journal has it too."""
    run.log({"note": "text", "loss": 1.0})
    run.log({"shape": [1, 2]}, stepp=3)
    status = run.finish(timeout=300)
    assert status.rejected_keys == {"note": "string", "shape": "vector", "log(stepp=...)": "unknown argument"}
    assert "REJECTED values of 'note' (string), 'log(stepp=...)'" in str(status)
    summary = read_run(run.home, run.id)
    assert summary.rejected_keys == status.rejected_keys
    assert summary.events["stepscope.rejected"] == 1
