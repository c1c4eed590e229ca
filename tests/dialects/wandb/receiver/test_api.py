"""Files, artifacts, resuming and reading back with the real W&B client, and `wandb sync` of an offline run."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.wandb.receiver.conftest import points, run_wandb, sql, wait_state
from tests.hub.conftest import RunningHub

WRITE = """
import math
from pathlib import Path
import wandb

run = wandb.init(project="read", id="r1", name="a run", config={"lr": 1, "deep": {"a": 2}})
data = Path("data.txt")
for text in ("first", "second"):
    data.write_text(text)
    artifact = wandb.Artifact("model", "model", metadata={"text": text})
    artifact.add_file("data.txt")
    run.log_artifact(artifact, aliases=["best"] if text == "first" else None)
    artifact.wait()
used = run.use_artifact("model:best")
assert Path(used.download("used"), "data.txt").read_text() == "first"
run.log({"table": wandb.Table(columns=["a", "b"], data=[[1, "x"], [2, "y"]]), "loss": 0.5})
for i in range(5):
    run.log({"loss": 1 / 3 * i, "k": i, "nan": math.nan})
run.save("data.txt")
run.finish()
run = wandb.init(project="read", id="r1", resume="must")
assert run.config["lr"] == 1
run.log({"loss": 99.0})
run.finish()
try:
    wandb.init(project="read", id="r1", resume="never")
except Exception as error:
    print("never:", type(error).__name__)
"""
READ = """
import json
from pathlib import Path
import wandb

api = wandb.Api()
run = api.run("read/r1")
model = api.artifact("read/model:latest")
rows = list(run.scan_history())
found = {
    "runs": [(each.id, each.name, each.state) for each in api.runs("read", filters={"config.lr.value": 1})],
    "config": run.config,
    "summary": {key: run.summary[key] for key in ("loss", "k")},
    "history": [(row["_step"], row.get("loss"), row.get("k"), str(row.get("nan"))) for row in rows],
    "table": rows[0]["table"]["_type"],
    "sampled": run.history(keys=["loss", "k"], pandas=False),
    "scanned": [(row["loss"], row["k"]) for row in run.scan_history(keys=["loss", "k"])],
    "paged": [row["k"] for row in run.scan_history(keys=["k"], page_size=2)],
    "odd": [float(row["nan"]) for row in run.scan_history(keys=["nan", "k"])],
    "odd_sampled": [float(row["nan"]) for row in run.history(keys=["nan"], pandas=False)],
    "machine": len(run.history(stream="events", pandas=False)) > 0,
    "files": sorted(file.name for file in run.files()),
    "downloaded": run.file("data.txt").download(root="again").read(),
    "logged": [(each.name, each.type, each.aliases) for each in run.logged_artifacts()],
    "used": [each.name for each in run.used_artifacts()],
    "model": (model.name, model.metadata, Path(model.download("model"), "data.txt").read_text()),
    "versions": [each.name for each in api.artifacts("model", "read/model")],
}
model.aliases.append("prod")
model.save()
run.tags.append("late")
run.update()
found["alias"] = api.artifact("read/model:prod").version
found["tags"] = api.run("read/r1").tags
print("FOUND", json.dumps(found))
"""
OFFLINE = """
import math
import wandb
run = wandb.init(project="synced", id="off", mode="offline", config={"a": 1})
for i in range(300):
    run.log({"loss": 1 / (i + 1), "x": math.nan if i % 7 == 0 else i})
run.finish()
"""
SYNC = """
import glob, subprocess, sys
folder = glob.glob("wandb/offline-run-*")[0]
for _ in range(2):
    subprocess.run([sys.executable, "-m", "wandb", "sync", "--include-synced", folder], check=True)
"""


@pytest.fixture(scope="module")
def found(hub: RunningHub, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a script reads with the API of what another one wrote."""
    place = tmp_path_factory.mktemp("api")
    assert "never:" in run_wandb(hub, place, WRITE)
    line = next(line for line in run_wandb(hub, place, READ).splitlines() if line.startswith("FOUND "))
    answer: dict[str, Any] = json.loads(line.removeprefix("FOUND "))
    return answer


def test_runs_and_history_are_read_back(found: dict[str, Any]) -> None:
    """Runs, configuration, summary and history are as they were written, not-a-number too, over a resumed run."""
    assert found["runs"] == [["r1", "a run", "finished"]]
    assert found["config"] == {"lr": 1, "deep": {"a": 2}}
    assert found["summary"] == {"loss": 99.0, "k": 4}
    middle = [[step, 1 / 3 * (step - 1), step - 1, "nan"] for step in range(1, 6)]
    assert found["history"] == [[0, 0.5, None, "None"], *middle, [6, 99.0, None, "None"]]
    assert found["scanned"] == [row[1:3] for row in middle]
    assert found["paged"] == [row[2] for row in middle]
    assert [math.isnan(value) for value in found["odd"] + found["odd_sampled"]] == [True] * 10
    assert [(row["_step"], row["loss"], row["k"]) for row in found["sampled"]] == [tuple(row[:3]) for row in middle]
    assert (found["table"], found["machine"], found["tags"]) == ("table-file", True, ["late"])


def test_files_and_artifacts_are_read_back(found: dict[str, Any]) -> None:
    """Files and artifacts have their bytes, versions, aliases and who logged and used them."""
    own = {"config.yaml", "data.txt", "output.log", "requirements.txt", "wandb-metadata.json", "wandb-summary.json"}
    assert own <= set(found["files"])
    assert found["downloaded"] == "second"
    assert found["logged"][:2] == [["model:v0", "model", ["best"]], ["model:v1", "model", ["latest"]]]
    assert found["logged"][2][1] == "run_table"
    assert (found["used"], found["versions"]) == (["model:v0"], ["model:v1", "model:v0"])
    assert (found["model"], found["alias"]) == (["model:latest", {"text": "second"}, "second"], "v1")


def test_an_offline_run_is_synced_once(hub: RunningHub, tmp_path: Path) -> None:
    """`wandb sync` of an offline folder brings every value; a second one adds nothing."""
    run_wandb(hub, tmp_path, OFFLINE)
    run_wandb(hub, tmp_path, SYNC)
    run = wait_state(hub, "off", "finished")
    assert (run["project"], run["attempts"], run["config"]["a"]) == ("synced", 1, 1)
    values = points(hub, "off")
    assert len(values) == 600
    assert values["loss", "", 299] == 1 / 300
    ((count,),) = sql(hub, "SELECT count() FROM metrics WHERE series IN (SELECT series FROM series WHERE run IN "
                           "(SELECT run FROM runs WHERE id = 'off') AND key IN ('loss', 'x'))")  # fmt: skip
    assert int(count) == 600


UNSUPPORTED = """
import wandb

api = wandb.Api()
calls = {
    "automations": lambda: list(api.automations()),
    "automations of an entity": lambda: list(api.automations("stepscope")),
    "reports": lambda: list(api.reports("stepscope/p")),
    "sweep": lambda: api.sweep("stepscope/p/x"),
    "integrations": lambda: list(api.integrations("stepscope")),
    "registries": lambda: list(api.registries("stepscope")),
}
for name, call in calls.items():
    try:
        print(f"{name}: {call()!r}")
    except Exception as error:
        print(f"{name}: raised {error}")
"""


def test_what_a_hub_lacks_is_refused_in_words(hub: RunningHub, tmp_path: Path) -> None:
    """Reports, automations, sweeps and registries are errors for the client that asks, not empty lists."""
    said = dict(line.split(": ", 1) for line in run_wandb(hub, tmp_path, UNSUPPORTED).splitlines() if ": " in line)
    for name, word in (
        ("automations", "does not support automations"),
        ("automations of an entity", "does not support automations"),
        ("reports", "does not support reports"),
        ("sweep", "does not support sweeps"),
        ("integrations", "does not support integrations"),
        ("registries", "not enabled on this wandb server"),
    ):
        assert said[name].startswith("raised"), said
        assert word in said[name]
