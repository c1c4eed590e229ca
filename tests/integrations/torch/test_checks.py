"""What is sampled of weights, gradients and inputs, and what the diagnosis says of it in real loops."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.journal.run_summary import read_run
from stepscope.model.records import Event, Metric, Record, Span
from tests.late import late

torch = late("torch")
integration = late("stepscope.integrations.torch", "torch")
Read = Callable[..., list[Any]]
pytestmark = pytest.mark.usefixtures("place")
STEPS = 130


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """No test leaves hooks behind."""
    yield
    integration.uninstrument()


def train(how: str, place: Path) -> None:
    """A small loop with a fault from step 20 on."""
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    if how == "unused":
        net[0].extra = torch.nn.Linear(8, 8)
    kept = list(net.parameters()) if how != "outside" else list(net[0].parameters())
    optimizer = torch.optim.SGD(kept, lr=0.01, momentum=0.9)
    fixed = torch.rand(32, 8)
    with stepscope.init(project="checks", overhead_budget=1.0) as run:
        integration.instrument()
        for step in range(STEPS):
            late_ = step >= 20
            with run.step(step):
                inputs = fixed if how == "full_batch" or (how == "stuck" and late_) else torch.rand(32, 8)
                if how != "not_cleared" or not late_:
                    optimizer.zero_grad(set_to_none=how != "zeroed")
                loss = (net(inputs) - inputs.sum(1, keepdim=True)).square().mean()
                if how == "accumulated":
                    (loss / 2).backward()
                    loss = (net(inputs) - 1.0).square().mean() / 2
                loss.backward()
                if how == "frozen" and late_:
                    optimizer.zero_grad()
                optimizer.step()
                run.log({"loss": loss.item()})


def diagnosed(records: list[Record]) -> dict[str, Any]:
    """The findings about execution, by kind."""
    made = Diagnosis()
    for record in records:
        made.feed(0, record)
    kinds = ("weights_frozen", "gradients_not_cleared", "stuck_batch", "unused_parameters", "replicas_differ")
    return {each.kind: each for each in made.findings() if each.kind in kinds}


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("healthy", None),
        ("zeroed", None),
        ("accumulated", None),
        ("full_batch", None),
        ("frozen", "weights_frozen"),
        ("not_cleared", "gradients_not_cleared"),
        ("stuck", "stuck_batch"),
        ("outside", "unused_parameters"),
        ("unused", "unused_parameters"),
    ],
)
def test_a_loop_that_does_not_train_is_named(place: Path, read: Read, how: str, kind: str | None) -> None:
    """Each fault is named within a few samples of its step, and healthy loops are left alone."""
    train(how, place)
    found = diagnosed(read(Metric, Event))
    assert list(found) == ([] if kind is None else [kind])
    if kind in ("weights_frozen", "gradients_not_cleared", "stuck_batch"):
        assert 20 <= (found[kind].step or 0) <= 20 + 45


def test_a_teacher_is_in_no_optimizer(place: Path, read: Read) -> None:
    """It is run first and requires gradients, but another module is trained."""
    teacher, student = torch.nn.Linear(8, 1), torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.01)
    with stepscope.init(project="checks") as run:
        integration.instrument()
        for step in range(30):
            with run.step(step):
                inputs = torch.rand(32, 8)
                wanted = teacher(inputs).detach()
                optimizer.zero_grad()
                (student(inputs) - wanted).square().mean().backward()
                optimizer.step()
    assert diagnosed(read(Metric, Event)) == {}


def test_names_of_parameters_outside_the_optimizer(place: Path, read: Read) -> None:
    """The finding names them."""
    train("outside", place)
    assert "2 of 4 parameters that require gradients are in no optimizer: 2.weight, 2.bias" in (
        diagnosed(read(Metric, Event))["unused_parameters"].text
    )


def test_checks_can_be_left_out(place: Path, read: Read) -> None:
    """Without them nothing is sampled."""
    with stepscope.init() as run:
        integration.instrument(checks=False)
        weight = torch.nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for step in range(30):
            with run.step(step):
                weight.square().sum().backward()
                optimizer.step()
    assert not [each for each in read(Metric) if "param_norm" in each.values]


def _loop(steps: int, **instrumented: Any) -> str:
    net = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with stepscope.init(project="checks", overhead_budget=0.0) as run:
        integration.instrument(**instrumented)
        for step in range(steps):
            with run.step(step):
                net(torch.rand(4, 8)).mean().backward()
                optimizer.step()
                run.log({"loss": 1.0})
        integration.uninstrument()
    return run.id


def _values(read: Read, key: str) -> int:
    return sum(key in each.values for each in read(Metric))


def test_optional_work_is_left_out_without_a_budget(place: Path, read: Read) -> None:
    """Checks and gradient norms are left out where the budget is spent; spans and what the program logs are not."""
    run = _loop(40)
    assert _values(read, "param_norm") == _values(read, "grad_norm") == 0
    assert _values(read, "loss") == 40
    assert sum(each.name == "train.optimizer_step" for each in read(Span)) == 40
    (writer,) = read_run(place, run).writers.values()
    assert writer.counters["overhead/hooks"] > 0


def test_gradient_norms_that_were_asked_for_are_kept(read: Read) -> None:
    """With `grad_norm` given, no budget leaves a norm out."""
    _loop(40, grad_norm=4)
    assert _values(read, "grad_norm") == 10


def _sampled(read: Read, place: Path, monkeypatch: pytest.MonkeyPatch, unaffordable: range, grace: float) -> list[int]:
    """The steps at which the weights were looked at."""
    monkeypatch.setattr("stepscope.integrations.torch.sampling.GRACE_SECONDS", grace)
    net = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with stepscope.init(project="checks", overhead_budget=1e-3) as run:
        integration.instrument()
        monkeypatch.setattr(run, "affords", lambda: step not in unaffordable)
        for step in range(STEPS):
            with run.step(step):
                net(torch.rand(4, 8)).mean().backward()
                optimizer.step()
        integration.uninstrument()
    found = [each.step for each in read(Metric) if "param_norm" in each.values]
    shutil.rmtree(place)
    return found


def test_ranks_look_at_the_same_steps(place: Path, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever each of them times and can afford: what they find is compared between them."""
    every = _sampled(read, place, monkeypatch, range(0), grace=1e9)
    assert len(every) > 6
    assert _sampled(read, place, monkeypatch, range(0), grace=0.0) == every
    less = _sampled(read, place, monkeypatch, range(5, 40), grace=0.0)
    assert less == [step for step in every if step not in range(5, 40)]
