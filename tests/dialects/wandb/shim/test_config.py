"""A configuration is a mapping, can be copied, and takes what a script says before the run or instead of it."""

import copy
import pickle
from typing import Any

import stepscope.compat.wandb as wandb
from stepscope.dialects.wandb.shim.start import Config
from stepscope.model.records import Event
from tests.dialects.wandb.shim.conftest import Read


def configs(read: Read) -> list[Any]:
    """What was recorded of the configuration: when the run began, and each change."""
    events = read(Event)
    began = [each.attrs["config"] for each in events if each.name == "train.run.started"]
    return began + [each.attrs for each in events if each.name == "train.config"]


def test_a_mapping() -> None:
    """The configuration can be listed, compared and printed."""
    wandb.init(config={"lr": 0.1, "depth": 3})
    assert list(wandb.config.values()) == [0.1, 3]
    assert wandb.config == {"lr": 0.1, "depth": 3} == dict(wandb.config)
    assert str(wandb.config) == "{'lr': 0.1, 'depth': 3}"
    wandb.config.persist()


def test_a_copy_is_nobodys(read: Read) -> None:
    """A configuration can be copied and pickled; changes of the copy do not affect the run."""
    wandb.init(config={"layers": [1, 2]})
    for duplicate in (copy.deepcopy(wandb.config), copy.copy(wandb.config), pickle.loads(pickle.dumps(wandb.config))):
        assert isinstance(duplicate, Config)
        assert duplicate.layers == [1, 2]
        duplicate.lr = 1
    assert copy.deepcopy(wandb.config).layers is not wandb.config.layers
    assert configs(read) == [{"layers": [1, 2]}]


def test_what_is_said_before_init(read: Read) -> None:
    """It is the configuration of the next run, and of that one only; what `init` is given is stronger."""
    wandb.config = {"lr": 0.1, "depth": 3}
    wandb.config.width = 4
    run = wandb.init(config={"lr": 0.5})
    assert wandb.config is run.config
    assert configs(read) == [{"lr": 0.5, "depth": 3, "width": 4}]
    wandb.finish()
    assert wandb.init().config == {}


def test_what_is_assigned_to_a_run_that_goes_on(read: Read) -> None:
    """A configuration or a summary that is assigned does not hide the run's: it goes into it."""
    wandb.init(config={"lr": 0.1})
    wandb.config = {"depth": 3}
    wandb.config = wandb.config
    wandb.summary = {"best": 7}
    assert (wandb.config.lr, wandb.config.depth, wandb.summary.best) == (0.1, 3, 7)
    assert configs(read) == [{"lr": 0.1}, {"depth": 3}]
