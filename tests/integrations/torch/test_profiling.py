"""A window of torch's profiler is a Chrome trace in the run's folder and an event that names it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.model.records import Event
from tests.late import late

torch = late("torch")
integration = late("stepscope.integrations.torch", "torch")
Read = Callable[..., list[Any]]
pytestmark = pytest.mark.usefixtures("place")


def train(run: stepscope.Run, steps: int) -> None:
    """Steps with one product of a size that tells the step."""
    weight = torch.nn.Parameter(torch.ones(4, 4))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for step in range(steps):
        with run.step(100 + step):
            (torch.ones(step + 1, 4) @ weight).sum().backward()
            optimizer.step()


def shapes(path: str) -> set[Any]:
    """The rows of the products in a trace."""
    events = json.loads(Path(path).read_text())["traceEvents"]
    found = [each["args"]["Input Dims"][0] for each in events if each.get("name") == "aten::mm"]
    return {dims[0] for dims in found if dims[1] == 4 and dims != [4, dims[1]]}


def test_a_range_of_steps(read: Read, place: Path) -> None:
    """The window has the steps of the range and no other, and the run has the trace."""
    with stepscope.init() as run:
        window = integration.profile(steps=range(1, 3), record_shapes=True)
        train(run, 5)
    (event,) = [each for each in read(Event) if each.name == "torch.profile"]
    assert window is not None
    assert event.attrs["path"] == str(window.path)
    assert Path(event.attrs["path"]).is_relative_to(place / "runs" / run.id)
    assert (event.attrs["steps"], event.attrs["format"]) == (2, "chrome")
    assert shapes(event.attrs["path"]) == {2, 3}


def test_the_run_ends_before_the_window(read: Read) -> None:
    """What there is is written when the run ends."""
    with stepscope.init() as run:
        integration.profile(steps=50)
        train(run, 2)
    (event,) = [each for each in read(Event) if each.name == "torch.profile"]
    assert event.attrs["steps"] == 2
    assert Path(event.attrs["path"]).stat().st_size == event.attrs["bytes"]


def test_wrong_steps_are_counted() -> None:
    """Invalid steps are rejected without an exception; so are unknown options."""
    assert integration.profile(3) is None
    run = stepscope.init()
    assert integration.profile(0) is None
    assert integration.profile("many") is None  # type: ignore[arg-type]
    assert integration.profile(range(5, 2)) is None
    assert integration.profile(1, no_such_option=1) is not None
    train(run, 2)
    counts = run.outcomes.snapshot()
    assert sum(count for name, count in counts.items() if name.startswith("rejected/value")) == 3
    assert counts["failed/torch.profile/TypeError"] == 1
