"""Ray really running: spans of tasks and actors are in the caller's run and trace, by decorator and by hook."""

import inspect
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.integrations import ray as ours
from stepscope.model.records import Log, Span
from stepscope.testing import read_batches
from stepscope.training.service.correlation import correlate
from tests.integrations import ray_work
from tests.late import late
from tests.ray_peer import connected

ray = late("ray")
ROOT = str(Path(__file__).parents[2])


@dataclass
class Seen:
    """What one visit to a cluster gave and left."""

    way: str
    answers: dict[str, Any]
    spans: dict[str, list[tuple[int, Span]]]
    logs: list[Log]


@pytest.fixture(scope="module", params=["decorator", "hook"])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """A visit to a cluster of this machine: as it is, or with the hook in the environment of its workers."""
    home = tmp_path_factory.mktemp("ray")
    run = stepscope.init(project="ray", home=home, probes=False, shipper="none", capture_logs=True)
    given = {"env_vars": {"PYTHONPATH": ROOT}}
    env = ours.runtime_env(given) if request.param == "hook" else given
    try:
        with connected(env):
            answers = visit()
            hooked = {"plain.inside"} if request.param == "hook" else set()
            spans = wait_for(run, {"Actor.call_other", "later.inside", "renamed", "decorated"} | hooked)
    finally:
        stepscope.finish()
    logs = [each for batch in read_batches(home, run.id) for each in batch.records if isinstance(each, Log)]
    return Seen(request.param, answers, spans, logs)


def visit() -> dict[str, Any]:
    """Call tasks and actors of every sort."""
    answers: dict[str, Any] = {}
    task = ray.remote(ray_work.decorated)
    with stepscope.span("caller"), correlate(session_id="s"):
        answers["task"] = ray.get(task.remote(1))
    with stepscope.span("failing"):
        try:
            ray.get(task.remote(1, fail=True))
        except ValueError as error:
            answers["failed"] = str(error)
    make = ray.remote(num_cpus=0)(ray_work.Actor)
    first, second = make.remote(10), make.remote()
    with stepscope.span("actors"):
        answers["add"] = ray.get(first.add.remote(1, 2, other=3))
        answers["other"] = ray.get(second.call_other.remote(first))
    answers["later"] = ray.get(ray.remote(num_cpus=0)(ray_work.Later).remote().add.remote(1))
    stream = ray.remote(num_returns="streaming")(ray_work.numbers).remote(3)
    answers["stream"] = [ray.get(each) for each in stream]
    answers["plain"] = ray.get(ray.remote(ray_work.plain).remote(1))
    return answers


def wait_for(run: stepscope.Run, names: set[str]) -> dict[str, list[tuple[int, Span]]]:
    """The spans of a run by name, with the process that wrote each, once all names are there."""
    assert run.flush(300)
    deadline = time.monotonic() + 300
    while True:
        found: dict[str, list[tuple[int, Span]]] = {}
        for batch in read_batches(run.home, run.id):
            for each in batch.records:
                if isinstance(each, Span) and each.duration is not None:
                    found.setdefault(each.name, []).append((batch.writer.pid, each))
        if names <= set(found) or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def test_a_task_is_a_span_below_the_caller_s(seen: Seen) -> None:
    """With the caller's keys, in the caller's run, written by the worker; its log lines too."""
    assert seen.answers["task"] == 2
    ((here, caller),) = seen.spans["caller"]
    ((there, task),) = [each for each in seen.spans["decorated"] if each[1].parent_id == caller.span_id]
    (inside,) = [each for _, each in seen.spans["inside"] if each.parent_id == task.span_id]
    assert here == os.getpid() != there
    assert task.trace_id == caller.trace_id
    assert task.attrs["tuft.session_id"] == inside.attrs["tuft.session_id"] == "s"
    (line,) = [each for each in seen.logs if each.body == "in a task" and each.span_id == inside.span_id]
    assert line.attrs["tuft.session_id"] == "s"


def test_a_task_that_fails_shows_error(seen: Seen) -> None:
    """And the caller gets its exception as from Ray itself."""
    assert "asked to fail" in seen.answers["failed"]
    ((_, caller),) = seen.spans["failing"]
    (task,) = [each for _, each in seen.spans["decorated"] if each.parent_id == caller.span_id]
    assert task.status == 2


def test_actors_and_their_handles_elsewhere(seen: Seen) -> None:
    """Each method is a span, arguments are passed on as they are, and a handle inside another actor carries too."""
    assert (seen.answers["add"], seen.answers["other"]) == (16, 21)
    ((_, caller),) = seen.spans["actors"]
    ((_, outer),) = seen.spans["Actor.call_other"]
    assert outer.parent_id == caller.span_id
    assert {each.parent_id for _, each in seen.spans["Actor.add"]} == {caller.span_id, outer.span_id}
    assert ray_work.Actor.nothing() is None


def test_coroutines_and_generators(seen: Seen) -> None:
    """Ray sees functions of the same sort, and they are spans too."""
    assert (seen.answers["later"], seen.answers["stream"]) == (2, [0, 1, 2])
    ((_, call),) = seen.spans["Later.add"]
    assert [each.parent_id for _, each in seen.spans["later.inside"]] == [call.span_id]
    assert len(seen.spans["renamed"]) == 1


def test_a_plain_task_joins_by_the_hook_alone(seen: Seen) -> None:
    """What is not decorated is recorded when the workers' environment says the run."""
    assert seen.answers["plain"] == 2
    if seen.way == "hook":
        ((pid, _),) = seen.spans["plain.inside"]
        assert pid != os.getpid()


def test_without_ray_and_without_a_run() -> None:
    """Decorated code is code as before: same answers, same signature but for one argument."""
    assert ray_work.decorated(1) == 2
    assert list(ray_work.numbers(2)) == [0, 1]
    assert "_stepscope" in inspect.signature(ray_work.decorated).parameters
    assert ours.carried(ray_work.decorated) is ray_work.decorated


@pytest.mark.parametrize("odd", [None, "text", {"stepscope-run": "{"}, {"stepscope-run": '{"run_id": "/"}'}])
def test_odd_carriers(odd: Any) -> None:
    """What a call brings may be anything: the call goes on."""
    assert ray_work.decorated(1, _stepscope=odd) == 2
    stepscope.finish()


def test_a_foreign_hook_is_called_too() -> None:
    """One that is a function is kept beside ours; one that is not is refused."""
    stepscope.init(disabled=False, otel=False, probes=False, shipper="none", sinks=[])
    called: list[int] = []
    env = ours.runtime_env({"worker_process_setup_hook": lambda: called.append(1)})
    env["worker_process_setup_hook"]()
    assert called == [1]
    with pytest.raises(stepscope.ConfigError):
        ours.runtime_env({"worker_process_setup_hook": "a.module"})
    stepscope.finish()
    assert ours.runtime_env({"a": 1}) == {"a": 1}
