"""The resource that stands for a writer."""

from stepscope.model.writer import Writer
from stepscope.wire.otlp.encode.resource import resource_of


def test_a_writer_is_described() -> None:
    """In OpenTelemetry's names and ours."""
    writer = Writer(
        id="w", run="R", project="P", name="base", attempt=2, rank=3, world_size=8, local_rank=1, host="h", pid=9
    )
    assert resource_of(writer) == {
        "service.name": "P",
        "service.instance.id": "R-r3",
        "train.run.id": "R",
        "train.run.name": "base",
        "train.experiment.name": "P",
        "train.job.attempt": 2,
        "dl.rank": 3,
        "dl.world_size": 8,
        "dl.local_rank": 1,
        "host.name": "h",
        "process.pid": 9,
    }


def test_its_own_resource_stands_but_for_its_identity() -> None:
    """The service is the user's to name; run and rank are not."""
    said = {"service.name": "svc", "service.instance.id": "i", "deployment.environment": "prod", "train.run.id": "lie"}
    found = resource_of(Writer(id="w", run="R", project="P", resource=said))
    assert (found["service.name"], found["service.instance.id"]) == ("svc", "i")
    assert (found["deployment.environment"], found["train.run.id"]) == ("prod", "R")
    assert said["train.run.id"] == "lie"


def test_a_forked_process_is_an_instance_of_its_own() -> None:
    """Or the cumulative sums of parent and child would interleave."""
    child = Writer(id="w", run="R", project="P", main=False, pid=9, resource={"service.instance.id": "R-r0"})
    assert resource_of(child)["service.instance.id"] == "R-r0-p9"


def test_what_is_unknown_is_not_said() -> None:
    """No empty host, no pid 0, no run name."""
    assert not {"host.name", "process.pid", "train.run.name"} & set(resource_of(Writer(id="w", run="R", project="P")))


def test_the_host_that_a_person_named() -> None:
    """`resource_attributes: {host.name: ...}` stands above the machine's own name."""
    writer = Writer(id="w", run="r", project="p", host="machine", resource={"host.name": "rack-7"})
    assert resource_of(writer)["host.name"] == "rack-7"
    assert resource_of(Writer(id="w", run="r", project="p", host="machine"))["host.name"] == "machine"
