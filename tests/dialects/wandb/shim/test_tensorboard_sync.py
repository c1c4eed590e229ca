"""Scripts that write to TensorBoard and ask wandb to follow, with the real writers."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepscope
import stepscope.compat.wandb as wandb
from stepscope.dialects.wandb.shim import tensorboard_sync
from stepscope.model.records import Event, Histogram, Metric
from tests.dialects.wandb.shim.conftest import Read
from tests.late import late

WRITERS = {"tensorboardX": "tensorboardX", "torch": "torch.utils.tensorboard"}


@pytest.fixture(autouse=True)
def nobody_follows() -> Iterator[None]:
    """The process has one follower, and it would go on in other tests."""
    yield
    tensorboard_sync.follow(None)


@pytest.fixture(params=WRITERS)
def writer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A SummaryWriter of each library, imported before the run begins."""
    module = pytest.importorskip(WRITERS[request.param], reason=f"{request.param} is not installed")
    made = module.SummaryWriter(str(tmp_path / "board"))
    yield made
    made.close()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """That of a machine without TensorFlow, which TensorBoard would import: it takes five seconds."""
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "tensorflow.py").write_text('raise ImportError("not installed")\n')
    return {**os.environ, "PYTHONPATH": str(tmp_path / "without")}


def points(read: Read) -> dict[str, list[tuple[int, Any]]]:
    """The (step, value) pairs of every key."""
    found: dict[str, list[tuple[int, Any]]] = {}
    for metric in read(Metric):
        for key, value in metric.values.items():
            found.setdefault(key, []).append((metric.step, value))
    return found


def test_scalars_and_histograms_are_recorded_at_their_steps(writer: Any, read: Read, tmp_path: Path) -> None:
    """In the manner of a reinforcement-learning script: the writer alone is called, and its files are written too."""
    wandb.init(project="cleanrl", sync_tensorboard=True)
    writer.add_text("hyperparameters", "|param|value|")
    for step in (0, 100, 200):
        writer.add_scalar("charts/episodic_return", step / 2, step)
        writer.add_scalar("losses/value_loss", scalar_value=0.25, global_step=step)
    writer.add_scalars("losses", {"a": 1.0, "b": 2.0}, 200)
    writer.add_histogram("weights", np.arange(100), 200)
    wandb.finish()
    found = points(read)
    assert found["charts/episodic_return"] == [(0, 0.0), (100, 50.0), (200, 100.0)]
    assert found["losses/value_loss"] == [(0, 0.25), (100, 0.25), (200, 0.25)]
    assert (found["losses/a"], found["losses/b"]) == ([(200, 1.0)], [(200, 2.0)])
    ((step, weights),) = found["weights"]
    assert isinstance(weights, Histogram)
    assert (step, weights.count, weights.total) == (200, 100, 4950.0)
    assert any((tmp_path / "board").rglob("events.out.*"))


def test_texts_hyperparameters_and_media(writer: Any, read: Read) -> None:
    """A text is an event, hyperparameters are configuration, their metrics are points, and media are media."""
    wandb.init(config={"seed": 1}, sync_tensorboard=True)
    writer.add_text("hyperparameters", "|param|value|")
    writer.add_text("note", "half way", 50)
    writer.add_image("frame", np.zeros((3, 4, 5), dtype=np.uint8), 7)
    writer.add_hparams({"lr": 0.1, "layers": 2}, {"score": 0.75})
    assert wandb.config.as_dict() == {"seed": 1, "lr": 0.1, "layers": 2}
    run = stepscope.current_run()
    assert run is not None
    assert run.flush(300)
    wandb.finish()
    events = {event.name: (event.step, event.attrs) for event in read(Event)}
    assert events["hyperparameters"] == (None, {"text": "|param|value|"})
    assert events["note"] == (50, {"text": "half way"})
    assert events["train.config"][1] == {"lr": 0.1, "layers": 2}
    assert [value for _, value in points(read)["score"]] == [0.75]
    (frame,) = [each for each in read(Event) if each.name == "stepscope.media"]
    assert (frame.step, frame.attrs["key"], frame.attrs["width"], frame.attrs["height"]) == (7, "frame", 5, 4)
    assert not [name for name in run.outcomes.snapshot() if name.startswith(("rejected", "dropped"))]


def test_a_ppo_script_records_what_it_writes(tmp_path: Path, read: Read, environment: dict[str, str]) -> None:
    """A program with the usual calls runs as it is: its arguments, its text and every scalar are in one run."""
    late("torch", "torch", "gymnasium", "tensorboard")
    script = Path(__file__).with_name("ppo_script.py")
    line = [sys.executable, str(script), "--seed", "3"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    found = points(read)
    steps = [step for step, _ in found["losses/value_loss"]]
    assert steps == [128, 256, 384, 512]
    for key in ("charts/learning_rate", "losses/policy_loss", "losses/entropy", "losses/approx_kl", "charts/SPS"):
        assert [step for step, _ in found[key]] == steps
    assert found["charts/learning_rate"][0] == (128, 2.5e-4)
    assert all(value >= 1 for _, value in found["charts/episodic_return"])
    events = {event.name: event.attrs for event in read(Event)}
    assert "|seed|3|" in events["hyperparameters"]["text"]
    assert events["train.run.started"]["config"]["total_timesteps"] == 512
    assert list((tmp_path / "runs").glob("CartPole-v1__ppo__3__*/events.out.tfevents.*"))


def test_nothing_is_recorded_unasked_or_after_the_end(writer: Any, read: Read) -> None:
    """Without `sync_tensorboard`, and after the end of the run, writers only write their files."""
    wandb.init()
    writer.add_scalar("early", 1.0, 1)
    wandb.tensorboard.patch(root_logdir="board")
    writer.add_scalar("loss", 1.0, 1)
    wandb.finish()
    writer.add_scalar("late", 1.0, 2)
    assert points(read) == {"loss": [(1, 1.0)]}


def test_odd_values_and_arguments_reach_the_writer_as_before(writer: Any, read: Read) -> None:
    """What the writer raises is raised; what it takes and we do not costs nothing but itself."""
    wandb.init(sync_tensorboard=True)
    with pytest.raises(TypeError):
        writer.add_scalar()
    writer.add_scalar("no step", 2.0)
    writer.add_scalar("nan", float("nan"), 5)
    wandb.finish()
    found = points(read)
    assert found["no step"] == [(0, 2.0)]
    assert str(found["nan"]) == "[(5, nan)]"


@pytest.mark.parametrize("module", WRITERS.values())
def test_a_writer_that_is_imported_later_is_followed(module: str, place: Path, environment: dict[str, str]) -> None:
    """The order of imports does not matter, and no library is imported for a script that does not."""
    late(module)
    program = f"""
import sys
import stepscope.compat.wandb as wandb
run = wandb.init(id="later", sync_tensorboard=True)
assert "tensorboardX" not in sys.modules and "torch" not in sys.modules
from {module} import SummaryWriter
SummaryWriter("board").add_scalar("loss", 0.5, 7)
wandb.finish()
from stepscope.model.records import Metric
from stepscope.testing import read_run
print([(r.step, r.values) for r in read_run({str(place)!r}, "later") if isinstance(r, Metric) and "loss" in r.values])
"""
    line = [sys.executable, "-c", program]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.stdout.strip() == "[(7, {'loss': 0.5})]", done.stderr


def test_tensorflow_writes_are_recorded(tmp_path: Path, read: Read) -> None:
    """`tf.summary.scalar` and `histogram` with a step, or with TensorFlow's own default step."""
    tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed")
    wandb.init(sync_tensorboard=True)
    with tf.summary.create_file_writer(str(tmp_path)).as_default():
        tf.summary.scalar("loss", 0.5, step=3)
        tf.summary.experimental.set_step(4)
        tf.summary.histogram("weights", tf.constant([1.0, 2.0]))
        tf.summary.text("note", "half way", step=5)
        tf.summary.image("frame", tf.zeros((1, 4, 4, 3)), step=5)
    wandb.finish()
    found = points(read)
    assert found["loss"] == [(3, 0.5)]
    assert (found["weights"][0][0], found["weights"][0][1].count) == (4, 2)
    (note,) = [event for event in read(Event) if event.name == "note"]
    assert (note.step, note.attrs) == (5, {"text": "half way"})
