"""Rules in the trainer: checked by `init`, evaluated outside the loop, recorded, and passed to `on_alert`."""

import math
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.alerts.alert import ATTR_FINGERPRINT, ATTR_RULE, ATTR_STATE, Subject
from stepscope.alerts.rule import Rule
from stepscope.diagnosis.finding import Finding
from stepscope.model.records import Alert
from stepscope.testing import read_run, series


def alerts_of(home: Path, run: str) -> list[Alert]:
    """The alerts of rules that a run recorded."""
    return [each for each in read_run(home, run) if isinstance(each, Alert) and ATTR_RULE in each.attrs]


def train(home: Path, losses: list[float], **options: Any) -> tuple[str, list[Alert]]:
    """Log losses, and return the run with the alerts of its rules."""
    run = stepscope.init(home=home, quiet=True, probes=False, **options)
    for step, loss in enumerate(losses):
        run.log({"loss": loss}, step=step, category="trainer")
    run.finish()
    return run.id, alerts_of(home, run.id)


@pytest.mark.parametrize("diagnosis", [True, False])
def test_a_rule_fires_and_resolves_without_a_hub(tmp_path: Path, diagnosis: bool) -> None:
    """A breach is recorded once with its step and value, and once more when it is over."""
    rules = [{"name": "high", "key": "trainer/loss", "when": "> 5", "for": "2 steps", "severity": "ERROR"}]
    run, (fired, resolved) = train(tmp_path, [1, 9, 9, 9, 1, 1], alerts=rules, diagnosis=diagnosis)
    assert (fired.name, fired.attrs[ATTR_STATE], fired.severity) == ("high", "firing", 17)
    assert resolved.attrs[ATTR_STATE] == "resolved"
    assert fired.attrs[ATTR_FINGERPRINT] == Subject("high", run, "trainer/loss", 0).fingerprint
    assert fired.message.startswith("trainer/loss on rank 0 is 9 since step 1")


def test_on_alert_is_called(tmp_path: Path) -> None:
    """The callback is called during the run, and can change the loop."""
    called, heard = threading.Event(), list[Finding]()

    def on_alert(finding: Finding) -> None:
        heard.append(finding)
        called.set()

    rule = Rule(name="odd", key="trainer/loss", test=lambda value: math.isnan(value) or value == 7)
    run = stepscope.init(home=tmp_path, quiet=True, probes=False, diagnosis=False, alerts=[rule], on_alert=on_alert)
    run.log({"loss": 7}, step=3, category="trainer")
    assert called.wait(300)
    run.finish()
    assert [(each.kind, each.key, each.step, each.value) for each in heard] == [("odd", "trainer/loss", 3, 7.0)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([{"name": "a", "when": "five"}], "alerts: rule 1: when: 'five' is not a condition"),
        ([{"when": "> 5"}], "missing required field `name`"),
        ({"name": "a"}, "expected a list of rules"),
        ("none.yaml", "none.yaml cannot be read"),
        (5, "expected a list of rules"),
    ],
)
def test_wrong_rules(tmp_path: Path, given: Any, said: str) -> None:
    """Rules that make no sense raise from `init`, and nothing starts."""
    with pytest.raises(stepscope.ConfigError, match=said):
        stepscope.init(home=tmp_path, alerts=given)
    assert not (tmp_path / "runs").exists()


def test_the_file_of_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`stepscope-alerts.yaml` in the working folder is read; a mistake in it is reported with line and column."""
    pytest.importorskip("yaml", reason="the file is YAML")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "stepscope-alerts.yaml"
    path.write_text("rules:\n  - {name: high, key: trainer/loss, when: '> 5'}\n")
    assert [each.name for each in train(tmp_path / "home", [9])[1]] == ["high"]
    path.write_text("rules:\n  - {name: high, when: much}\n")
    with pytest.raises(stepscope.ConfigError, match=r"stepscope-alerts.yaml:2:24: when: 'much' is not a condition"):
        stepscope.init(home=tmp_path / "home")


def test_nothing_is_imported_without_rules() -> None:
    """A run without rules does not load them."""
    script = "import sys, stepscope; print([name for name in sys.modules if name.startswith('stepscope.alerts')])"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_a_condition_that_raises_hurts_nobody(tmp_path: Path) -> None:
    """A function that raises puts its alert in error; the loop and the records go on."""

    def broken(value: float) -> bool:
        raise RuntimeError("no")

    run, alerts = train(tmp_path, [1.0, 2.0], alerts=[Rule(name="bad", test=broken)], diagnosis=False)
    assert alerts == []
    assert series(read_run(tmp_path, run), "trainer/loss") == [(0, 1.0), (1, 2.0)]
