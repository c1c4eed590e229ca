"""A hub gives way to what else its machine does, unless it is told not to."""

import os
from pathlib import Path

import pytest

pytest.importorskip("tests.chdb")

from stepscope.alerts.rule_file import NAME
from stepscope.hub.diagnosing.thread import SETTLE_SECONDS
from stepscope.hub.home import HubHome
from stepscope.hub.home_store import open_home_store
from stepscope.hub.intake.pacing import BUSY_PACE_SECONDS, QUIET_PACE_SECONDS
from stepscope.hub.intake.store_pump import PACE_SECONDS, WATCHED_PACE_SECONDS
from stepscope.hub.security.tokens import Tokens
from stepscope.hub.service import Hub, HubOptions
from stepscope.hub.serving.priority import VARIABLE
from tests.forked import stepscope
from tests.hub.conftest import StartHub

pytestmark = pytest.mark.skipif(not Path("/proc/self/autogroup").parent.is_dir(), reason="reads /proc")


def _threads(pid: int) -> set[tuple[int, int]]:
    """The niceness and the scheduling policy of each thread of a process."""
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        number = int(task.name)
        found.add((os.getpriority(os.PRIO_PROCESS, number), os.sched_getscheduler(number)))
    return found


@pytest.mark.parametrize(("arguments", "env"), [((), {VARIABLE: ""}), (("--priority", "low"), {})])
def test_low_priority(start_hub: StartHub, arguments: tuple[str, ...], env: dict[str, str]) -> None:
    """Without an option every thread of a hub, those of the engine too, has the lowest niceness, and it answers."""
    hub = start_hub(*arguments, env=env)
    assert hub.process is not None
    assert hub.request("GET", "/api/runs").status == 200
    assert _threads(hub.process.pid) == {(19, os.SCHED_BATCH)}


def test_normal_priority(start_hub: StartHub) -> None:
    """With `--priority normal` a hub runs like any other program."""
    hub = start_hub("--priority", "normal", env={VARIABLE: "low"})
    assert hub.process is not None
    here = os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)
    highest = -20, here[1]  # run by root, the engine gives this to the thread that watches its memory
    assert _threads(hub.process.pid) - {highest} == {here}


def test_unknown_priority(tmp_path: Path) -> None:
    """A variable that holds something else is refused with the known values."""
    ended = stepscope("hub", "--home", tmp_path / "home", "--port", "0", **{VARIABLE: "lowest"})
    assert (ended.returncode, "low or normal" in ended.stderr) == (2, True), ended.stderr


@pytest.mark.parametrize(
    ("yields", "busy", "rules", "pace"),
    [
        (True, False, "", QUIET_PACE_SECONDS),
        (True, True, "", BUSY_PACE_SECONDS),
        (True, True, "rules: []\n", WATCHED_PACE_SECONDS),
        (False, True, "", PACE_SECONDS),
    ],
)
def test_commits_while_nobody_reads(tmp_path: Path, yields: bool, busy: bool, rules: str, pace: float) -> None:
    """A hub of low priority stores less often while nobody reads, and more often where users have alert rules."""
    home = HubHome(tmp_path)
    if rules:
        (tmp_path / NAME).write_text(rules)
    hub = Hub(HubOptions(home=tmp_path, yields=yields), home, open_home_store(home), Tokens(home.tokens))
    hub.pacing._machine.is_busy = lambda: busy  # type: ignore[method-assign]
    try:
        assert hub.quiet_pace() == pace
    finally:
        hub.close(0.1)


def test_a_live_run_is_not_settled_between_two_commits() -> None:
    """A run counts as over for the diagnosis only when no record came for longer than commits are apart."""
    assert SETTLE_SECONDS > BUSY_PACE_SECONDS + PACE_SECONDS
