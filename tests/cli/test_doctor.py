"""`stepscope doctor`: what it looks at, and when it fails."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.cli import doctor
from stepscope.cli.main import main
from stepscope.journal import layout
from stepscope.sdk.core import chosen
from stepscope.sdk.shipping.delivery_state import Pending
from stepscope.sdk.shipping.sink_worker import Report
from tests.cli.journals import metric, write


@pytest.fixture(autouse=True)
def _plain_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings and no launcher of the machine that runs the test."""
    for name in ("RANK", "WORLD_SIZE", "SLURM_JOB_ID", "SLURM_PROCID", "STEPSCOPE_HOME", "STEPSCOPE_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def examine(home: Path, capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, Any]:
    """Run the command and return its findings by topic."""
    assert main(["doctor", "--home", str(home), "--json"]) == code
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is (code == 0)
    return {finding["topic"]: finding for finding in found["findings"]}


def test_a_sound_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Versions, settings, home, space, journals, probes and launcher are looked at."""
    write(tmp_path, "R", [metric(1, loss=1.0)])
    found = examine(tmp_path, capsys)
    topics = {"python", "stepscope", "core", "msgspec", "opentelemetry-api", "settings", "home", "space", "journals"}
    assert topics | {"cpu", "memory", "disk", "network", "process", "launcher"} <= set(found)
    assert found["journals"]["data"]["runs"] == 1
    assert found["core"]["data"] == chosen()
    assert all(finding["mark"] in ("ok", "warn") for finding in found.values())


def test_every_probe_is_found_or_missing_with_a_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A GPU that cannot be read is a warning that says why, not a failure."""
    found = examine(tmp_path, capsys)
    gpus = [finding for topic, finding in found.items() if topic.startswith("gpu")]
    assert gpus
    assert all(finding["mark"] == "ok" or "NVIDIA" in finding["text"] for finding in gpus)


def test_text_has_one_line_for_each_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The mark comes first."""
    assert main(["doctor", "--home", str(tmp_path)]) == 0
    for line in capsys.readouterr().out.splitlines():
        assert line.split()[0] in ("ok", "warn", "fail")


def test_a_home_that_cannot_be_written_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The fix is named, and the exit code is 1."""
    (tmp_path / "file").write_text("in the way")
    home = examine(tmp_path / "file" / "home", capsys, code=1)["home"]
    assert home["mark"] == "fail"
    assert "STEPSCOPE_HOME" in home["text"]


def test_a_home_that_is_not_made_yet_is_fine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first run makes it; looking does not."""
    assert "not made yet" in examine(tmp_path / "a" / "b", capsys)["home"]["text"]
    assert not (tmp_path / "a").exists()


def test_damage_is_a_warning_with_the_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Which file, how many stretches; a torn tail is none."""
    folder = write(tmp_path, "R", *([metric(n, loss=float(n))] for n in range(9)))
    path = layout.list_segments(folder)[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data[:-1])
    damage = examine(tmp_path, capsys)["damage"]
    assert damage["mark"] == "warn"
    assert damage["data"] == {str(path): 1}


def test_wrong_settings_fail_and_the_rest_is_still_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One problem does not hide another."""
    monkeypatch.setenv("STEPSCOPE_PROBE_INTERVAL", "never")
    found = examine(tmp_path, capsys, code=1)
    assert found["settings"]["mark"] == "fail"
    assert "probe_interval" in found["settings"]["text"]
    assert "cpu" in found


def test_settings_in_force_are_told_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What differs from the defaults is in the text, everything is in the JSON."""
    monkeypatch.setenv("STEPSCOPE_PROJECT", "gpt")
    monkeypatch.setenv("STEPSCOPE_DISABLED", "1")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "api_key=sk-1,team=x")
    found = examine(tmp_path, capsys)
    assert "project=gpt" in found["settings"]["text"]
    assert found["settings"]["data"]["resource_attributes"] == {"api_key": "[redacted]", "team": "x"}
    assert found["disabled"]["mark"] == "warn"


def test_the_launcher_and_its_variables_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The doctor shows the launcher of this process and the rank it would record as."""
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    monkeypatch.setenv("SLURM_PROCID", "3")
    monkeypatch.setenv("SLURM_NTASKS", "8")
    found = examine(tmp_path, capsys)
    assert found["launcher"]["data"]["rank"] == 3
    assert found["launcher"]["data"]["world_size"] == 8
    assert found["Slurm"]["data"]["SLURM_JOB_ID"] == "42"


def test_little_space_is_a_warning_and_none_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The marks follow the free bytes."""
    free = list(doctor.check_home(tmp_path))[1].data
    monkeypatch.setattr(doctor, "_LITTLE_SPACE", free * 2)
    assert list(doctor.check_home(tmp_path))[1].mark == "warn"
    monkeypatch.setattr(doctor, "_NO_SPACE", free * 2)
    assert list(doctor.check_home(tmp_path))[1].mark == "fail"


@pytest.mark.parametrize("name", ["local", "[]"])
def test_no_sink_to_send_to(capsys: pytest.CaptureFixture[str], name: str) -> None:
    """The journal needs no probe: one sentence says so."""
    assert main(["doctor", "--sink", name]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert f"{name} is not a sink to send to" in told.err


def test_what_keeps_a_sink_from_taking_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a shipper said last of a sink is a warning with advice, until the sink recovers."""
    folder = tmp_path / "shipping"
    folder.mkdir()
    report = Report("hub-1", "http://hub:4318", {"retried": 9}, "HTTP 401: this token is not known", 4096, 1000.0)
    (folder / "hub-1@here.report").write_bytes(msgspec.json.encode(report))
    (folder / "torn@here.report").write_bytes(b"{")
    found = examine(tmp_path, capsys)["delivery"]
    assert found["mark"] == "warn"
    assert "hub-1 (http://hub:4318)" in found["text"]
    assert "this token is not known; set a valid token" in found["text"]
    assert found["data"]["unread"] == 4096
    well = msgspec.structs.replace(report, problem="", time=2000.0)
    (folder / "hub-1@all.report").write_bytes(msgspec.json.encode(well))
    assert "delivery" not in examine(tmp_path, capsys)


def test_a_dead_destination_is_a_warning_also_while_a_shipper_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a running shipper is about to deliver is in order; what it could not deliver is not."""
    left = Pending("A", "here", "otlp", "http://127.0.0.1:9", 4096, shipper=1)
    for problem, mark in (("", "ok"), ("refused: nothing listens on this port", "warn")):
        waiting = msgspec.structs.replace(left, problem=problem)
        monkeypatch.setattr(doctor, "pending", lambda home, waiting=waiting: [waiting])
        assert [each.mark for each in doctor.check_delivery(tmp_path)] == [mark]
