"""An unmodified script with the real W&B client: what arrives is an ordinary run, with every value."""

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from stepscope.dialects.wandb.importer import WandbFiles
from stepscope.model.records import Metric
from tests.dialects.wandb.receiver.conftest import points, run_wandb, spelled, sql, wait_state
from tests.hub.conftest import RunningHub

SCRIPT = """
import math, sys
import numpy as np
import wandb

run = wandb.init(
    project="first", id="full", name="a name", config={"lr": 3e-4, "deep": {"a": [1, 2]}, "api_key": "sk-secret"},
    tags=["one", "two"], notes="some notes", group="g", job_type="train", settings=wandb.Settings(console="wrap"),
)
run.define_metric("val/step")
run.define_metric("val/*", step_metric="val/step")
print("hello console")
print("oh no", file=sys.stderr)
for i in range(20):
    rare = {"nan": math.nan, "inf": math.inf, "ninf": -math.inf}
    run.log({"loss": 1 / (i + 1), **rare, "nest": {"a": i, "b": {"c": 0.1 * i}}})
    run.log({"val/acc": i / 7, "val/step": i * 10})
run.log({"text": "words", "image": wandb.Image(np.zeros((4, 4, 3), dtype=np.uint8)), "h": wandb.Histogram([1, 2, 2])})
run.summary["best"] = 0.9
run.config.update({"late": 1})
run.alert("too hot", "the text", level=wandb.AlertLevel.WARN)
run.finish(exit_code=3)
"""


TRAINERS = """
import random, sys
sys.path.append(SITE)  # TensorBoard's writer; everything else is the client's own
import numpy as np
import wandb
from tensorboardX import SummaryWriter

# as nanoGPT: values of the evaluation, with the number of the iteration among them
config = {"eval_interval": 5, "learning_rate": 6e-4, "decay_lr": True, "init_from": "scratch", "device": "cpu"}
wandb.init(project="owt", name="gpt2", id="nanogpt", config=config)
for iter_num in range(0, 50, 5):
    losses = {"train": np.float32(3 / (iter_num + 1)), "val": np.float64(4 / (iter_num + 1))}
    wandb.log({
        "iter": iter_num,
        "train/loss": losses["train"],
        "val/loss": losses["val"],
        "lr": 6e-4 / (iter_num + 1),
        "mfu": -1.0 * 100,
    })
wandb.finish()

# as CleanRL: everything goes through TensorBoard
args = {"exp_name": "dqn", "seed": 1, "total_timesteps": 100, "gamma": 0.99, "capture_video": False}
run_name = "CartPole-v1__dqn__1__1700000000"
wandb.init(
    project="cleanRL", entity=None, sync_tensorboard=True, config=args, name=run_name, id="cleanrl", save_code=True
)
writer = SummaryWriter(f"runs/{run_name}")
rows = [f"|{key}|{value}|" for key, value in args.items()]
writer.add_text("hyperparameters", "|param|value|\\n|-|-|\\n" + "\\n".join(rows))
for global_step in range(0, 100, 10):
    writer.add_scalar("charts/episodic_return", global_step / 7, global_step)
    writer.add_scalar("losses/td_loss", 1 / (global_step + 1), global_step)
    writer.add_scalar("charts/SPS", 100 + global_step, global_step)
writer.close()
wandb.finish()
"""


OF_FULL = "run IN (SELECT run FROM runs WHERE id = 'full')"


@pytest.fixture(scope="module")
def full(hub: RunningHub, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunningHub, Path]:
    """A hub with the runs of the scripts, and the folder in which they ran."""
    place = tmp_path_factory.mktemp("full")
    (package,) = importlib.util.find_spec("tensorboardX").submodule_search_locations  # type: ignore[union-attr,misc]
    site = str(Path(package).parent)
    run_wandb(hub, place, f"SITE = {site!r}\n{SCRIPT}\n{TRAINERS}")
    wait_state(hub, "full", "failed")
    return hub, place


def written(place: Path, run: str) -> dict[tuple[str, str, int], Any]:
    """What the client wrote beside the script: values by key, axis and step."""
    (folder,) = place.glob(f"wandb/run-*-{run}")
    (run_files,) = WandbFiles().find(folder, lambda reason, count: None)
    found: dict[tuple[str, str, int], Any] = {}
    for chunk in run_files.parts[0].read(None, lambda reason, count: None):
        for packed in chunk.records:
            if packed[1] == 0 and (metric := msgspec.msgpack.decode(packed, type=Metric)).category is None:
                for key, value in metric.values.items():
                    if isinstance(value, (int, float)):
                        found[key, metric.axis or "", metric.step or 0] = spelled(float(value))
    return found


def test_every_value_is_stored_as_the_client_wrote_it(full: tuple[RunningHub, Path]) -> None:
    """Values equal those in the client's own file, not-a-number and infinities too; steps are its steps or its axis."""
    hub, place = full
    stored, expected = points(hub, "full"), written(place, "full")
    assert len(expected) == 20 * 6 + 20 * 2
    assert [expected["val/acc", "val/step", i * 10] for i in range(20)] == [i / 7 for i in range(20)]
    assert stored == expected
    assert {value for (key, _, _), value in stored.items() if key in ("nan", "inf", "ninf")} == {"nan", "inf", "-inf"}


def test_scripts_as_people_have_them(full: tuple[RunningHub, Path]) -> None:
    """The calls of nanoGPT and of CleanRL, whose values come from TensorBoard: each value equals the client's own."""
    hub, place = full
    for run, count in (("nanogpt", 50), ("cleanrl", 30)):
        described = wait_state(hub, run, "finished")
        stored = points(hub, run)
        assert stored == written(place, run)
        assert len([key for key, _, _ in stored if key != "global_step"]) == count
        assert described["config"].items() >= ({"decay_lr": True} if run == "nanogpt" else {"gamma": 0.99}).items()
    values = points(hub, "cleanrl")
    rows = [(values["global_step", "", row], np.float32(values["losses/td_loss", "", row])) for row in range(10)]
    assert rows == [(step, np.float32(1 / (step + 1))) for step in range(0, 100, 10)]


def test_the_run_is_described(full: tuple[RunningHub, Path]) -> None:
    """Name, configuration, tags, notes, group, job type and exit status are those of the script; secrets are masked."""
    hub, _ = full
    run = wait_state(hub, "full", "failed")
    assert (run["project"], run["name"], run["notes"], run["group"]) == ("first", "a name", "some notes", "g")
    assert (run["job_type"], run["tags"], run["attempts"]) == ("train", {"one": True, "two": True}, 1)
    config = run["config"]
    assert (config["lr"], config["deep"]) == (3e-4, {"a": [1, 2]})
    everything = json.dumps(run) + "".join(str(row) for row in sql(hub, "SELECT attr_values FROM logs"))
    assert "sk-secret" not in everything
    kept = b"".join(path.read_bytes() for path in (hub.home / "hub" / "files").rglob("*") if path.is_file())
    assert b"sk-secret" not in kept


def test_logs_alerts_machine_metrics_and_other_values(full: tuple[RunningHub, Path]) -> None:
    """The console becomes logs, an alert an alert, machine metrics `system/`, and the rest events at their step."""
    hub, _ = full
    logs = sql(hub, "SELECT body, severity FROM logs WHERE scope = 'console' ORDER BY time")
    assert ["hello console", 9] in logs
    assert ["oh no", 17] in logs
    assert sql(hub, "SELECT name, body, severity FROM alerts WHERE name = 'too hot'") == [["too hot", "the text", 13]]
    keys = {row[0] for row in sql(hub, "SELECT key FROM series WHERE key LIKE 'system/%'")}
    assert {"system/process/rss_bytes", "system/memory/utilization"} <= keys
    ((step, names, values),) = sql(
        hub, f"SELECT step, attr_names, attr_values FROM logs WHERE name = 'wandb.values' AND {OF_FULL}"
    )
    assert (int(step), "words" in values, "image" in str(names)) == (40, True, True)
    summaries = sql(hub, f"SELECT attr_names FROM logs WHERE name = 'train.summary' AND {OF_FULL}")
    assert "best" in summaries[0][0]
    assert math.isclose(sum(row[0] for row in sql(hub, "SELECT count FROM histograms")), 3)


def test_media_are_kept(full: tuple[RunningHub, Path]) -> None:
    """Uploaded files lie below the hub's folder with the bytes that the client has."""
    hub, place = full
    (image,) = place.rglob("media/images/image_*.png")
    (kept,) = (hub.home / "hub" / "files").rglob("image_*.png")
    assert kept.read_bytes() == image.read_bytes()


def test_the_clients_own_telemetry_is_dropped(full: tuple[RunningHub, Path]) -> None:
    """It is answered, and no run or series comes of it."""
    hub, _ = full
    assert hub.post("/sdk/otel/v1/metrics", b"anything").status == 200
    assert {row[0] for row in sql(hub, "SELECT id FROM runs")} == {"full", "nanogpt", "cleanrl"}
