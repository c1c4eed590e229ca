"""`stepscope alerts`: rules checked with their place, tested on tables and stored runs, and what fires."""

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("yaml", reason="rules are YAML")

import stepscope
from stepscope.cli.main import main

RULES = "rules:\n  - {name: high, key: trainer/loss, when: '> 5', for: 2 steps}\n"
TESTS = """
file: alerts.yaml
tests:
  - name: a spike of one step
    values: {trainer/loss: 1x3 9 1}
    expect:
      - {rule: high, step: 3, state: pending}
      - {rule: high, step: 4, state: inactive}
  - name: longer
    values: {trainer/loss: [1, 9, .nan, 1]}
    expect:
      - {rule: high, step: 2, state: firing}
      - {rule: high, step: 3, state: resolved}
"""


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """Run the command; what it printed."""
    assert main(["alerts", *words]) == code
    said = capsys.readouterr()
    return said.out + said.err


def blocks(page: str) -> list[str]:
    """The YAML of a page of the docs, in order."""
    root = Path(__file__).parents[2]
    return re.findall(r"```yaml\n(.*?)```", (root / "docs" / page).read_text(), re.DOTALL)


def test_the_example_of_the_docs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The tests on the page about alerts pass against the rules on the same page, and notice a changed rule."""
    rules, tests = (next(each for each in blocks("alerts.md") if each.startswith(word)) for word in ("rules:", "file:"))
    (tmp_path / "alerts.yaml").write_text(rules)
    (tmp_path / "tests.yaml").write_text(tests)
    assert "0 failed" in run(capsys, "test", str(tmp_path / "tests.yaml"))
    (tmp_path / "alerts.yaml").write_text(rules.replace("for: 20 steps", "for: 2 steps"))
    assert "FAILED" in run(capsys, "test", str(tmp_path / "tests.yaml"), code=1)


def test_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files are right, or wrong at a line and column with what to write; without any the packs are in force."""
    home = ["--home", str(tmp_path)]
    assert "packs are active" in run(capsys, "check", *home)
    (tmp_path / "alerts.yaml").write_text(RULES)
    assert "1 rule, 0 notifiers" in run(capsys, "check", *home)
    (tmp_path / "alerts.yaml").write_text(RULES.replace("> 5", "five"))
    said = run(capsys, "check", *home, code=1)
    assert "alerts.yaml:2:43: when: 'five' is not a condition: write `> 5`" in said
    other = tmp_path / "other.yaml"
    other.write_text("notifiers:\n  a: {webhook: {url: nowhere}}")
    (found,) = json.loads(run(capsys, "check", str(other), "--json", code=1))
    wrong = found["mistake"]
    assert wrong["message"] == "notifier a: url must be http://HOST/... or https://HOST/..."
    assert (wrong["line"], wrong["column"]) == (2, 6)
    other.write_text("notifiers:\n  a: {webhok: {}}")
    assert "other.yaml:2:6: unknown notifier 'webhok'" in run(capsys, "check", str(other), code=1)


def test_tests_of_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables of values pass or fail with the step and both states."""
    (tmp_path / "alerts.yaml").write_text(RULES)
    path = tmp_path / "tests.yaml"
    path.write_text(TESTS)
    assert "2 tests, 0 failed" in run(capsys, "test", str(path))
    path.write_text(TESTS.replace("state: firing", "state: inactive"))
    assert "step 2: high is firing, expected inactive" in run(capsys, "test", str(path), code=1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TESTS.replace("alerts.yaml", "none.yaml"), "tests.yaml:2:7: none.yaml"),
        (TESTS.replace("1x3 9 1", "one"), "'one' is not a value"),
        (TESTS.replace("rule: high", "rule: hgih"), "there is no rule 'hgih'"),
        (TESTS.replace("state: pending", "state: odd"), "tests.yaml:7:38: 'odd' is not one of error, firing"),
        (RULES, "has no `tests:`"),
        (TESTS.replace("1x3 9 1", "1x999999"), "at most"),
    ],
)
def test_wrong_tests(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str) -> None:
    """A test that makes no sense is refused with what is wrong."""
    (tmp_path / "alerts.yaml").write_text(RULES)
    (tmp_path / "tests.yaml").write_text(text)
    assert said in run(capsys, "test", str(tmp_path / "tests.yaml"), code=2)


def test_a_stored_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a hub: a run is replayed, its alerts are listed, and a silence is kept."""
    pytest.importorskip("tests.chdb", reason="the hub's store needs chDB")
    team = {"team": {"webhook": {"url": "http://127.0.0.1:9/hook"}}}
    (tmp_path / "alerts.yaml").write_text(f"{RULES}notifiers: {json.dumps(team)}\n")
    training = stepscope.init(project="p", name="spiky", home=tmp_path, quiet=True, probes=False)
    for step, loss in enumerate([1, 1, 9, 9, 9, 1]):
        training.log({"loss": loss}, step=step, category="trainer")
    training.finish()
    home = ["--home", str(tmp_path)]
    said = run(capsys, "test", str(tmp_path / "alerts.yaml"), "--run", "spiky", *home)
    assert "WARN step 2 to 4, resolved: trainer/loss on rank 0 is" in said
    assert "1 alert over 6 points of 1 metric" in said
    assert "nothing fires" in run(capsys, "list", *home)
    (alert,) = [each for each in json.loads(run(capsys, "list", "--all", "--json", *home)) if each["rule"] == "high"]
    assert (alert["state"], alert["step"], alert["run_name"]) == ("resolved", 2, "spiky")
    assert "high" in run(capsys, "list", "--rules", *home)
    said = run(capsys, "silence", "--rule", "hi*", "--for", "30s", "--why", "known", *home)
    assert re.search(r"rule hi\*.*, \d+(\.\d+)? s left", said)
    (silence,) = json.loads(run(capsys, "silence", "--json", *home))["silences"]
    assert silence["why"] == "known"
    run(capsys, "silence", "--remove", silence["id"], *home)
    assert "nothing is silenced" in run(capsys, "silence", *home)
