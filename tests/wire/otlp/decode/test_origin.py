"""Runs, ranks and projects recognised in what foreign clients say."""

from itertools import combinations
from typing import Any

import pytest

from stepscope.model.names import STEP_FIELDS
from stepscope.model.records import FIRST_STEP
from stepscope.training.trainer_fields import sort
from stepscope.wire.otlp.decode.origin import Origin, Origins, take_step
from stepscope.wire.otlp.names import RESOURCE_RUN_ALIASES, RUN_ALIASES, STEPS, Encoding
from tests.wire.otlp.bodies import ENCODINGS, decoded, gauge, request, span


def origins(resource: dict[str, Any], *attrs: dict[str, Any], headers: dict[str, str] | None = None) -> list[Origin]:
    """The origins of spans with these attributes."""
    message = request("traces", [span(attrs=each) for each in attrs or ({},)], resource)
    found = [decoded("traces", message, encoding, headers=headers) for encoding in ENCODINGS]
    assert found[0] == found[1]
    return [group.origin for group in found[0].groups]


@pytest.mark.parametrize("alias", RESOURCE_RUN_ALIASES)
def test_a_resource_names_the_run(alias: str) -> None:
    """Under any of the names in use."""
    (origin,) = origins({"service.name": "s", alias: "run-7"})
    assert (origin.run, origin.project) == ("run-7", "s")


@pytest.mark.parametrize("alias", RUN_ALIASES)
def test_a_record_names_the_run(alias: str) -> None:
    """A server that serves many runs says which one on each span; the others stay with the service."""
    found = origins(
        {"service.name": "s", "service.instance.id": "i"}, {alias: "a"}, {alias: "b"}, {"x": 1}, {alias: "a"}
    )
    assert sorted(origin.run for origin in found) == ["a", "b", "s-i"]


def test_a_record_keeps_the_attribute_that_named_its_run() -> None:
    """TuFT's correlation keys stay searchable."""
    found = decoded("traces", request("traces", [span(attrs={"tuft.training_run_id": "a"})]), "protobuf")
    assert found.groups[0].records[0].attrs == {"tuft.training_run_id": "a"}


def test_the_stronger_name_wins_over_the_nearer() -> None:
    """A process that says it belongs to a run is not torn from it by a foreign id on a span."""
    (origin,) = origins({"train.run.id": "mine"}, {"tuft.lora_id": "theirs"})
    assert origin.run == "mine"
    (origin,) = origins({"train.run.id": "mine"}, {"train.run.id": "nearer"})
    assert origin.run == "nearer"
    (origin,) = origins({"run_id": "weak"}, {"rl.run.id": "strong"})
    assert origin.run == "strong"


def test_run_id_on_a_record_may_be_anything() -> None:
    """Agents number each call with `run_id`: it does not make a run."""
    (origin,) = origins({"service.name": "s"}, {"run_id": "call-1"})
    assert origin.run == "s"


@pytest.mark.parametrize(
    ("resource", "run"),
    [
        ({}, "unknown_service"),
        ({"service.name": "s"}, "s"),
        ({"service.name": "s", "service.instance.id": "i"}, "s-i"),
        ({"service.name": "s", "host.name": "h", "process.pid": 7}, "s-h-7"),
        ({"train.run.id": "  "}, "unknown_service"),
        ({"nemo.run.id": 4711}, "4711"),
        ({"train.run.id": True}, "unknown_service"),
    ],
)
def test_the_service_instance_becomes_the_run(resource: dict[str, Any], run: str) -> None:
    """Pure OpenTelemetry users see something sensible."""
    assert origins(resource)[0].run == run


def test_mlflow_headers_name_run_and_experiment() -> None:
    """In any case; attributes are stronger; the experiment is kept for the hub to look up."""
    headers = {"X-MLflow-Run-Id": "abc", "x-mlflow-experiment-id": "12"}
    (origin,) = origins({"service.name": "s"}, headers=headers)
    assert (origin.run, origin.resource["mlflow.experiment_id"]) == ("abc", "12")
    assert origins({"train.run.id": "r"}, headers=headers)[0].run == "r"


@pytest.mark.parametrize(
    ("resource", "project"),
    [
        ({"service.name": "s", "service.namespace": "n", "train.experiment.name": "e"}, "e"),
        ({"service.name": "s", "service.namespace": "n"}, "n"),
        ({"service.name": "s"}, "s"),
        ({}, "unknown_service"),
    ],
)
def test_the_project(resource: dict[str, Any], project: str) -> None:
    """What names the experiment, else the namespace, else the service."""
    assert origins(resource)[0].project == project


def test_rank_and_attempt_from_the_resource() -> None:
    """Rank and attempt are read as numbers, or as strings from OTEL_RESOURCE_ATTRIBUTES."""
    said = {"dl.rank": 3, "dl.world_size": 8, "dl.local_rank": 1, "train.job.attempt": 2}
    for resource in (said, {key: str(value) for key, value in said.items()}):
        (origin,) = origins({**resource, "host.name": "h", "process.pid": 9, "train.run.name": "base"})
        assert (origin.rank, origin.world_size, origin.local_rank, origin.attempt) == (3, 8, 1, 2)
        assert (origin.host, origin.pid, origin.name) == ("h", 9, "base")


@pytest.mark.parametrize("rank", [-1, 2**31, "x", 1.5, True, "٣", "9" * 50])
def test_an_impossible_rank_is_none(rank: Any) -> None:
    """An invalid rank is ignored, and the records are kept."""
    assert origins({"dl.rank": rank})[0].rank == 0


def test_a_record_may_say_its_rank() -> None:
    """A bare `rank` counts beside a world size only: alone it may be a LoRA's."""
    found = origins(
        {"service.name": "s"}, {"dl.rank": 1}, {"rank": 2, "world_size": 4}, {"rank": 16}, {"tuft.lora_rank": 8}
    )
    assert [(origin.rank, origin.world_size) for origin in found] == [(0, 1), (1, 2), (2, 4)]
    assert {origin.run for origin in found} == {"s"}


def test_points_may_say_their_run() -> None:
    """Points may name their run, like spans."""
    metric = gauge("loss", {"train.run.id": "a", "train.step": 5})
    (group,) = decoded("metrics", request("metrics", [metric]), "json").groups
    assert (group.origin.run, group.records[0].step) == ("a", 5)


def test_the_key_tells_processes_apart() -> None:
    """It is the same for the same resource only, or one would be shown with the attributes of another; a file name."""
    base = {"service.name": "s", "service.instance.id": "i", "train.run.id": "../r"}
    keys = {
        origins({**base, **more})[0].key
        for more in ({}, {"other": 1}, {"service.instance.id": "j"}, {"dl.rank": 1}, {"train.job.attempt": 2})
    }
    assert len(keys) == 5
    assert origins(dict(reversed(base.items())))[0].key == origins(base)[0].key
    assert all(len(key) == 32 and key.isalnum() for key in keys)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_schema_of_a_resource_is_kept(encoding: Encoding) -> None:
    """The schema URL of a resource becomes one of its attributes."""
    message = request("traces", [span()])
    message.resource_spans[0].schema_url = "https://example.org/1"
    (group,) = decoded("traces", message, encoding).groups
    assert group.origin.resource["otel.resource.schema_url"] == "https://example.org/1"


def test_headers_are_optional() -> None:
    """A hub that passes none still gets an origin."""
    assert Origins().enter({}).home == []


@pytest.mark.parametrize("alias", STEPS)
def test_every_alias_is_taken_out(alias: str) -> None:
    """The value becomes the step, the name its axis unless it is the plain one."""
    attrs: dict[str, Any] = {"a": 1, alias: 7, "z": 2}
    assert take_step(attrs) == (7, None if alias in ("train.step", "step") else alias)
    assert attrs == {"a": 1, "z": 2}


def test_the_strongest_wins_and_the_others_stay() -> None:
    """rust_ppo sends two: the policy version is the step, the timesteps remain to be seen."""
    attrs: dict[str, Any] = {"timesteps": 4096, "policy_version": 3}
    assert take_step(attrs) == (3, "policy_version")
    assert attrs == {"timesteps": 4096}


@pytest.mark.parametrize(("strong", "weak"), list(combinations(STEP_FIELDS, 2)))
def test_fields_have_the_order_that_trainers_give_them(strong: str, weak: str) -> None:
    """An event has the same step whether it comes from the trainer or by OTLP."""
    attrs: dict[str, Any] = {weak: 4096, strong: 3}
    assert take_step(attrs)[0] == sort({weak: 4096, strong: 3}).step == 3
    assert attrs == {weak: 4096}


def test_the_name_of_an_axis_travels_beside_the_step() -> None:
    """Our own sinks send the axis as `train.step.name`."""
    attrs: dict[str, Any] = {"train.step": 5, "train.step.name": "tokens"}
    assert take_step(attrs) == (5, "tokens")
    assert attrs == {}


@pytest.mark.parametrize("value", ["7", 7.5, True, None, float("nan"), float("inf"), 1e300, [7]])
def test_only_whole_numbers_are_steps(value: Any) -> None:
    """Anything else stays an attribute."""
    attrs = {"step": value}
    assert take_step(attrs) == (None, None)
    assert attrs == {"step": value}


def test_a_weaker_alias_serves_when_the_stronger_is_no_number() -> None:
    """A text under `step` does not hide the iteration."""
    attrs: dict[str, Any] = {"step": "warmup", "iteration": 8.0}
    assert take_step(attrs) == (8, "iteration")
    assert attrs == {"step": "warmup"}


@pytest.mark.parametrize("name", ["train.step", "global_step"])
def test_the_number_that_means_no_step_is_none(name: str) -> None:
    """The two least integers, which stores reserve, stay attributes; the next one is a step."""
    assert take_step({name: FIRST_STEP - 2}) == take_step({name: FIRST_STEP - 1}) == (None, None)
    assert take_step({name: FIRST_STEP})[0] == FIRST_STEP
