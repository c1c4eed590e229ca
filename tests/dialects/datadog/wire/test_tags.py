"""Tags become runs: which run, rank and step a sample belongs to."""

import pytest

from stepscope.dialects.datadog.wire.items import metric_name
from stepscope.dialects.datadog.wire.tags import key_of, place_of, step_axis, step_strength


@pytest.mark.parametrize(
    ("tags", "run", "project"),
    [
        (("run_id:r1", "service:svc"), "r1", "svc"),
        (("run_name:nice",), "nice", "datadog"),
        (("run_id:r1", "run_name:nice", "project:p"), "r1", "p"),
        (("train.run.id:r2",), "r2", "datadog"),
        (("service:svc",), "svc-box", "svc"),
        ((), "datadog-box", "datadog"),
        (("host:other",), "datadog-other", "datadog"),
    ],
)
def test_runs(tags: tuple[str, ...], run: str, project: str) -> None:
    """A tag names the run; without one there is a run for each service and host."""
    origin = place_of(tags, "box").origin
    assert (origin.run, origin.project) == (run, project)
    assert origin.name == ("nice" if "run_name:nice" in tags else None)


def test_what_is_no_place_is_an_attribute() -> None:
    """Other tags are attributes, of several values a list; the process keeps service, environment and container."""
    place = place_of(
        ("a:b", "x:1", "x:2", "bare", "env:prod", "version:3", "rank:2", "url:http://h"), "box", "c1", "e1"
    )
    assert place.attrs == {"a": "b", "x": ["1", "2"], "bare": "", "url": "http://h"}
    assert (place.origin.rank, place.origin.world_size) == (2, 3)
    assert place.origin.resource == {
        "deployment.environment.name": "prod",
        "service.version": "3",
        "host.name": "box",
        "container.id": "c1",
        "datadog.external_data": "e1",
    }


def test_a_step_among_the_tags() -> None:
    """A whole number is the step and no attribute; anything else stays a tag."""
    assert place_of(("step:12",))[1:] == ({}, 12, None)
    assert place_of(("global_step:7", "axis:updates"))[1:] == ({}, 7, "updates")
    assert place_of(("policy_version:3",))[1:] == ({}, 3, "policy_version")
    assert place_of(("step:final",))[1:] == ({"step": "final"}, None, None)


def test_which_gauges_say_the_step() -> None:
    """The last parts of a name tell, and the surer name is the stronger one."""
    names = ["signal.train.step", "a.training.step", "x.policy_version", "global_step", "my.step", "iteration"]
    strengths = [step_strength(name) for name in names]
    assert None not in strengths
    assert strengths == sorted(strengths, key=lambda each: each or 0)
    assert [step_strength(name) for name in ("optim_step", "step.time", "loss", "steps")] == [None] * 4
    assert (step_axis("a.step"), step_axis("a.policy_version")) == (None, "policy_version")


@pytest.mark.parametrize("key", ["trainer/loss", "loss", "system/cpu.percent", "my.own"])
def test_keys_of_our_own_sink_come_back(key: str) -> None:
    """A name that our sink made is the key it was; any other stays as it is."""
    assert key_of(metric_name(key, "stepscope")) == key
    assert key_of("signal.training.loss") == "signal.training.loss"
