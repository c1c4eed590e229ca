"""Where the hooks would exceed the overhead budget, the passes of only some steps are timed."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.model.names import ATTR_SAMPLED
from stepscope.model.records import Metric, Span
from tests.late import late

torch = late("torch")
integration = late("stepscope.integrations.torch", "torch")
sampling = late("stepscope.integrations.torch.sampling", "torch")
Read = Callable[..., list[Any]]
pytestmark = pytest.mark.usefixtures("place")
PHASES = {"train.forward", "train.backward", "train.optimizer_step"}
STEPS = 400


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """No test leaves hooks behind."""
    yield
    integration.uninstrument()


def train(run: stepscope.Run, steps: int) -> None:
    """A loop that does next to nothing beside the hooks."""
    net = torch.nn.Linear(4, 1)
    optimizer, data = torch.optim.SGD(net.parameters(), lr=0.1), torch.randn(2, 4)
    for step in range(steps):
        with run.step(step):
            net(data).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()


def phases(records: list[Any]) -> dict[str, dict[int, Any]]:
    """The spans of the phases by name and step."""
    found: dict[str, dict[int, Any]] = {name: {} for name in PHASES}
    for each in records:
        if isinstance(each, Span) and each.name in PHASES:
            found[each.name][each.step or 0] = each
    return found


def test_some_steps_are_timed_whole(place: Path, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step has all its phases or none; a span stands for as many steps as are left out, and nothing else is."""
    monkeypatch.setattr("stepscope.integrations.torch.sampling.GRACE_SECONDS", 0.0)
    run = stepscope.init(project="torch")
    integration.instrument(grad_norm=1)
    train(run, STEPS)
    run.finish()
    records = read()
    forward, *others = phases(records).values()
    assert all(each.keys() == forward.keys() for each in others)
    weights = [each.attrs.get(ATTR_SAMPLED, 1) for each in forward.values()]
    assert len(forward) < STEPS / 2
    assert max(weights) >= 2
    assert STEPS / 8 < sum(weights) < STEPS * 4
    assert sum(isinstance(each, Span) and each.name == "train.step" for each in records) == STEPS
    norms = [each.step for each in records if isinstance(each, Metric) and "grad_norm" in each.values]
    assert norms == list(range(STEPS))


def test_a_short_run_is_complete(place: Path, read: Read) -> None:
    """Before the hooks took a quarter of a second, and in the first steps, no step is left out."""
    run = stepscope.init(project="torch")
    integration.instrument()
    train(run, 5)
    run.finish()
    assert all(sorted(each) == [0, 1, 2, 3, 4] for each in phases(read()).values())


def after(steps: int, *, hook: float, step: float, budget: float = 0.005, matters: bool = True) -> Any:
    """The sampling of a loop whose hooks and steps take so many seconds."""
    now = 0.0
    made = sampling.Sampling(lambda: now)
    for number in range(steps):
        now += step
        if made.on:
            made.add(hook)
            made.end_step(number, budget, matters=matters)
        else:
            made.skip(number)
    return made


def test_the_period_follows_the_cost() -> None:
    """Hooks of 0.2 ms in steps of 3 ms are too much, in steps of 100 ms they are not, nor where a device hides them."""
    assert after(2000, hook=0.0002, step=0.003).every == 32
    assert after(2000, hook=0.0002, step=0.1).every == 1
    assert after(2000, hook=0.0002, step=0.003, matters=False).every == 1
    assert after(2000, hook=0.0002, step=0.003, budget=0.0).every == sampling.MAX_EVERY


def test_the_first_steps_are_timed_whatever_they_cost() -> None:
    """The first hooks load what they need: that is no reason to leave the next hundred steps out."""
    now = 0.0
    made = sampling.Sampling(lambda: now)
    for number in range(200):
        now += 0.25
        assert made.on
        made.add(0.0003 if number > 1 else 0.3)
        made.end_step(number, 0.005, matters=True)


def test_time_that_a_hook_waits_for_a_cpu_is_not_its_cost() -> None:
    """On a busy machine, where half of the steps have a hook that waits, all steps are timed."""
    now = 0.0
    made = sampling.Sampling(lambda: now)
    for number in range(200):
        now += 0.25
        assert made.on
        made.add(0.03 if number % 2 else 0.0003)
        made.end_step(number, 0.005, matters=True)


def test_steps_that_are_left_out_are_told_from_whole_ones() -> None:
    """The last step before the first that is left out has the attribute, and so has every step that is timed later."""
    now, told = 0.0, {}
    made = sampling.Sampling(lambda: now)
    for number in range(4000):
        step = 0.003 if number < 2000 else 1.0
        now += step
        if made.on:
            told[number] = made.attrs().get(ATTR_SAMPLED)
            made.add(0.0002)
            made.end_step(number, 0.005, matters=True)
        else:
            made.skip(number)
    first = next(number for number in range(4000) if number not in told)
    assert told[first - 2] is None
    assert told[first - 1] == 1
    assert None not in [weight for number, weight in told.items() if number > first]
    assert told[3999] == 1
    assert max(told) - min(number for number, weight in told.items() if number > 2000 and weight == 1) > 1000


def test_ranks_choose_the_same_steps() -> None:
    """Steps of a longer period are among those of a shorter one, as many as expected, at no fixed distance."""
    chosen = {every: [at for at in range(8192) if sampling.is_chosen(at, every)] for every in (1, 8, 64)}
    assert set(chosen[64]) < set(chosen[8]) < set(chosen[1])
    assert all(0.8 < len(steps) * every / 8192 < 1.25 for every, steps in chosen.items())
    assert len({b - a for a, b in itertools.pairwise(chosen[8])}) > 20
