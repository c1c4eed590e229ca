"""The Alertmanager notifier against Debian's prometheus-alertmanager."""

import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope.dialects.alertmanager.notifier import Alertmanager
from stepscope.model.errors import Reject, Retry
from stepscope.testing.notifiers import example
from tests.alerts.notifiers.ports import free_port

CONFIG = "route: {receiver: none}\nreceivers: [{name: none}]\n"
START_SECONDS = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of its own."""
    program = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    if program is None:
        pytest.skip("Alertmanager is not installed (Debian package prometheus-alertmanager)")
    folder: Path = tmp_path_factory.mktemp("alertmanager")
    (folder / "config.yml").write_text(CONFIG)
    port = free_port()
    line = [program, f"--config.file={folder}/config.yml", f"--storage.path={folder}/data"]
    line += [f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="]
    with (folder / "log").open("w") as log, subprocess.Popen(line, stdout=log, stderr=log) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            await_ready(url)
            yield url
        finally:
            process.terminate()
            process.wait(300)


def await_ready(url: str) -> None:
    """Wait until the server answers."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            urllib.request.urlopen(f"{url}/-/ready", timeout=5).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise


def alerts(url: str) -> list[dict[str, Any]]:
    """What the server knows."""
    with urllib.request.urlopen(f"{url}/api/v2/alerts", timeout=300) as answer:
        found: list[dict[str, Any]] = json.load(answer)
        return found


def test_alerts_are_taken_and_resolved(server: str) -> None:
    """A firing alert is active there with its labels; sent again it is the same; resolved it is gone."""
    notifier = Alertmanager.read({"url": server, "labels": {"team": "red"}}, {}).open()
    notifier.send(example(count=2))
    notifier.send(example())
    found = alerts(server)
    assert len(found) == 2
    labels = min((each["labels"] for each in found), key=lambda each: each["rank"])
    assert labels == {
        "alertname": "high loss",
        "rule": "high loss",
        "severity": "error",
        "project": "contract",
        "run": "contract-run",
        "key": "trainer/loss",
        "rank": "0",
        "team": "red",
    }
    assert found[0]["annotations"]["description"] == "trainer/loss is NaN since step 7"
    notifier.send(example("resolved", count=2))
    assert alerts(server) == []


def test_refusals_and_absence(server: str) -> None:
    """A wrong address is refused with the status, a port where nothing listens means Retry."""
    with pytest.raises(Reject, match="HTTP 404"):
        Alertmanager.read({"url": f"{server}/elsewhere"}, {}).open().send(example())
    with pytest.raises(Retry, match="nothing listens"):
        Alertmanager.read({"url": f"http://127.0.0.1:{free_port()}"}, {}).open().send(example())
