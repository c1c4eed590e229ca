"""PyTorch's phases are spans of the step they happen in, and torch is as before afterwards."""

import copy
import importlib
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.model.names import COLLECTIVES
from stepscope.model.records import Metric, Span
from tests.late import late

torch = late("torch")
integration = late("stepscope.integrations.torch", "torch")
Read = Callable[..., list[Any]]
pytestmark = pytest.mark.usefixtures("place")
BUCKETS = {
    "train.data_load": "idle",
    "train.forward": "productive",
    "train.backward": "productive",
    "train.optimizer_step": "productive",
}


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """No test leaves hooks behind."""
    yield
    integration.uninstrument()


@pytest.fixture
def run(place: Path) -> stepscope.Run:
    """A current run."""
    return stepscope.init(project="torch")


def model() -> Any:
    """Modules inside modules."""
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))


def loader(workers: int = 0) -> Any:
    """Three batches."""
    data = torch.utils.data.TensorDataset(torch.randn(12, 4))
    return torch.utils.data.DataLoader(data, batch_size=4, num_workers=workers)


def train(run: stepscope.Run, net: Any, steps: int = 3) -> None:
    """A plain loop."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    batches = iter(loader())
    for step in range(steps):
        with run.step(step):
            (batch,) = next(batches)
            net(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()


def test_each_phase_is_a_span_of_its_step(run: stepscope.Run, read: Read) -> None:
    """Three steps have four phases each, below the span of the step, with their buckets."""
    integration.instrument()
    train(run, model())
    run.finish()
    spans = read(Span)
    steps = {span.step: span.span_id for span in spans if span.name == "train.step"}
    for name, bucket in BUCKETS.items():
        found = [span for span in spans if span.name == name]
        assert [span.step for span in found] == [0, 1, 2], name
        assert [span.parent_id for span in found] == [steps[0], steps[1], steps[2]], name
        assert {span.attrs["train.bucket"] for span in found} == {bucket}
        assert {span.status for span in found} == {0}
    assert {span.attrs["train.module"] for span in spans if span.name == "train.forward"} == {"Sequential"}
    assert run.goodput().buckets["productive"] > 0


def test_phases_come_one_after_the_other(run: stepscope.Run, read: Read) -> None:
    """The backward pass ends before the optimizer steps."""
    integration.instrument()
    train(run, model(), steps=1)
    run.finish()
    spans = {span.name: span for span in read(Span) if span.name in BUCKETS}
    ends = [spans[name].time + spans[name].duration for name in BUCKETS]
    begins = [spans[name].time for name in BUCKETS]
    slack = 1_000_000  # begins are wall-clock time, durations monotonic
    assert all(end <= begin + slack for end, begin in zip(ends, begins[1:], strict=False))


def test_gradient_norm(run: stepscope.Run, read: Read) -> None:
    """The norm is that of the gradients the optimizer gets, at its step, every so many steps."""
    integration.instrument(grad_norm=2)
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    expected = {}
    for step in range(4):
        with run.step(10 + step):
            net(torch.ones(2, 4)).sum().backward()
            expected[10 + step] = float(torch.cat([each.grad.flatten() for each in net.parameters()]).norm())
            optimizer.step()
            optimizer.zero_grad()
    run.finish()
    norms = {each.step: each.values["grad_norm"] for each in read(Metric) if "grad_norm" in each.values}
    assert norms == {10: pytest.approx(expected[10]), 12: pytest.approx(expected[12])}


def test_outside_steps_the_axis_is_named(run: stepscope.Run, read: Read) -> None:
    """Without `run.step` values are counted by optimizer steps, and the run's own counter is not touched."""
    integration.instrument(grad_norm=1)
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        net(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        run.log({"loss": 1.0})
    run.finish()
    found = [(each.step, each.axis, *each.values) for each in read(Metric)]
    assert found == [
        (0, "optimizer_step", "grad_norm"), (0, None, "loss"), (1, "optimizer_step", "grad_norm"), (1, None, "loss"),
    ]  # fmt: skip


def test_inference_is_not_training(run: stepscope.Run, read: Read) -> None:
    """A pass without gradients has another name and no bucket."""
    integration.instrument()
    with torch.no_grad():
        model()(torch.ones(2, 4))
    run.finish()
    (span,) = [each for each in read(Span) if each.name.endswith("forward")]
    assert span.name == "inference.forward"
    assert "train.bucket" not in span.attrs


def test_a_failing_forward(run: stepscope.Run, read: Read) -> None:
    """The user gets torch's own exception, the span has it too, and the next pass is timed."""
    integration.instrument()
    net = model()
    with pytest.raises(RuntimeError, match="shapes"):
        net(torch.ones(2, 5))
    net(torch.ones(2, 4)).sum().backward()
    run.finish()
    first, second = [each for each in read(Span) if each.name == "train.forward"]
    assert first.status == 2
    assert "shapes" in first.message
    assert second.status == 0
    assert [each.status for each in read(Span) if each.name == "train.backward"] == [0]


def test_a_failing_backward(run: stepscope.Run, read: Read) -> None:
    """A backward pass without an end is marked as failed, and the next one is timed."""
    integration.instrument()
    net = model()

    def refuse(gradient: Any) -> None:
        raise ValueError("no")

    hook = net[0].weight.register_hook(refuse)
    with pytest.raises(ValueError, match="no"):
        net(torch.ones(2, 4)).sum().backward()
    hook.remove()
    train(run, net, steps=1)
    run.finish()
    first, second = [each for each in read(Span) if each.name == "train.backward"]
    assert (first.status, first.message) == (2, "did not end")
    assert second.status == 0


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputed_activations_are_part_of_the_backward_pass(run: stepscope.Run, read: Read, reentrant: bool) -> None:
    """Activation checkpointing calls modules again in the backward pass; that is no forward pass."""
    from torch.utils.checkpoint import checkpoint

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model()

        def forward(self, given: Any) -> Any:
            return checkpoint(self.inner, given, use_reentrant=reentrant)

    integration.instrument()
    Net()(torch.ones(2, 4, requires_grad=True)).sum().backward()
    run.finish()
    names = [each.name for each in read(Span)]
    assert names.count("train.forward") == 1
    assert names.count("train.backward") == 1


def test_optimizer_in_backward(run: stepscope.Run, read: Read) -> None:
    """Optimizers that step inside the backward pass do not end it."""
    integration.instrument()
    net = model()
    for parameter in net.parameters():
        own = torch.optim.SGD([parameter], lr=0.1)
        parameter.register_post_accumulate_grad_hook(lambda _, own=own: own.step())
    net(torch.ones(2, 4)).sum().backward()
    run.finish()
    spans = read(Span)
    (backward,) = [each for each in spans if each.name == "train.backward"]
    assert backward.status == 0
    steps = [each for each in spans if each.name == "train.optimizer_step"]
    assert len(steps) == 4
    assert {each.parent_id for each in steps} == {backward.span_id}


def test_outputs_of_any_shape(run: stepscope.Run, read: Read) -> None:
    """The backward pass is found behind dicts, tuples and nested ones."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model()

        def forward(self, given: Any) -> Any:
            return {"aux": None, "out": ("text", [self.inner(given)])}

    integration.instrument()
    Net()(torch.ones(2, 4))["out"][1][0].sum().backward()
    run.finish()
    assert [each.status for each in read(Span) if each.name == "train.backward"] == [0]


def test_checkpoints(run: stepscope.Run, read: Read, tmp_path: Path) -> None:
    """Saving and loading are spans with the path, and with the size of what was saved."""
    integration.instrument()
    path = tmp_path / "weights.pt"
    with run.step(7):
        torch.save(model().state_dict(), path)
    torch.load(path)
    with pytest.raises(FileNotFoundError):
        torch.load(tmp_path / "nowhere.pt")
    run.finish()
    found = [each for each in read(Span) if each.name.startswith("train.checkpoint")]
    assert [(each.name, each.step, each.status) for each in found] == [
        ("train.checkpoint.save", 7, 0), ("train.checkpoint.load", None, 0), ("train.checkpoint.load", None, 2),
    ]  # fmt: skip
    saved = {"train.checkpoint.path": str(path), "train.checkpoint.bytes": path.stat().st_size}
    assert found[0].attrs == {"train.bucket": "overhead", **saved}


def test_every_collective_of_torch_is_known() -> None:
    """Functions that a newer torch adds for FSDP would else be neither timed nor named in a hang."""
    inner = importlib.import_module("torch.distributed.distributed_c10d")
    words = ("all_", "reduce", "scatter", "gather", "broadcast", "barrier")
    found = {each for each in inner.__all__ if any(map(each.startswith, words)) and callable(getattr(inner, each))}
    assert found - {"reduce_op"} - {*COLLECTIVES} == set()


def test_collectives(run: stepscope.Run, read: Read, tmp_path: Path) -> None:
    """Each collective of Python code is one span with its size; one made of others is one."""
    dist = torch.distributed
    if not dist.is_available():
        pytest.skip("needs torch.distributed")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        integration.instrument()
        with run.step(3):
            dist.all_reduce(torch.ones(10))
            dist.all_gather_object([None], {"a": 1})
            dist.all_reduce(torch.ones(2), async_op=True).wait()
    finally:
        integration.uninstrument()
        dist.destroy_process_group()
    run.finish()
    first, second, third = [each for each in read(Span) if each.name.startswith("train.collective")]
    assert first.attrs == {"train.bucket": "overhead", "dl.bytes": 40, "dl.dtype": "float32", "dl.sequence": 1}
    assert (first.name, first.step) == ("train.collective.all_reduce", 3)
    assert second.name == "train.collective.all_gather_object"
    assert (third.attrs["dl.async"], third.attrs["dl.sequence"]) == (True, 3)


def test_uninstrument_leaves_torch_as_it_was(run: stepscope.Run, read: Read) -> None:
    """Functions, hooks and modules are the same objects as before; nothing is timed any more."""
    from torch.nn.modules import module as modules
    from torch.optim import optimizer as optimizers
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    def seen() -> list[Any]:
        hooks = [modules._global_forward_pre_hooks, modules._global_forward_hooks]
        hooks += [optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks]
        calls = [torch.save, torch.serialization.load, torch.distributed.all_reduce, _BaseDataLoaderIter.__next__]
        return [*calls, *(list(each) for each in hooks)]

    before = seen()
    integration.instrument()
    integration.instrument()
    assert seen() != before
    net = model()
    train(run, net)
    assert not net._forward_hooks
    integration.uninstrument()
    integration.uninstrument()
    assert seen() == before
    count = len(read(Span))
    train(run, net)
    assert len([each for each in read(Span) if each.name in BUCKETS]) == len(BUCKETS) * 3
    assert count < len(read(Span))


def test_a_model_can_be_copied_and_pickled(run: stepscope.Run) -> None:
    """Nothing of ours stays on a model between passes."""
    integration.instrument()
    net = model()
    net(torch.ones(2, 4)).sum().backward()
    assert b"stepscope" not in pickle.dumps(net)
    assert copy.deepcopy(net)(torch.ones(2, 4)).shape == (2, 1)
    assert pickle.loads(pickle.dumps(torch.save)) is torch.save


@pytest.mark.parametrize("way", ["whole", "in place", "function"])
def test_compiled(run: stepscope.Run, read: Read, way: str) -> None:
    """Compiled models compute the same, once compiled they stay so, and the outermost one is timed."""
    integration.instrument()
    net = model()
    expected = net(torch.ones(2, 4)).detach()
    torch._dynamo.reset()
    compiled = net
    if way == "in place":
        net.compile(backend="eager")
    else:
        compiled = torch.compile(net if way == "whole" else lambda given: net(given), backend="eager", fullgraph=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for step in range(3):
            with run.step(step):
                out = compiled(torch.ones(2, 4))
                out.sum().backward()
    assert torch.allclose(out, expected)
    run.finish()
    timed = {each.step for each in read(Span) if each.name == "train.forward"} - {None}
    assert timed == ({0, 1, 2} if way == "whole" else set())


def test_without_a_run_nothing_happens(place: Path) -> None:
    """Hooks without a run change nothing."""
    integration.instrument()
    net = model()
    net(torch.ones(2, 4)).sum().backward()
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    assert len(list(loader())) == 3
    assert not place.exists()


def test_a_hook_that_fails_is_counted(run: stepscope.Run) -> None:
    """Failures in our hooks are counted, and training continues."""
    integration.instrument(grad_norm=1)
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    weight.grad = torch.ones(3)
    run.periodic.closing = None  # type: ignore[assignment]
    optimizer.step()
    assert float(weight[0].detach()) == pytest.approx(0.9)
    assert run.outcomes.snapshot()["failed/torch/AttributeError"] == 1
    run.periodic.closing = []


def test_workers(run: stepscope.Run, read: Read) -> None:
    """A loader with processes of its own is timed in the process that waits for it."""
    integration.instrument()
    assert len(list(loader(workers=1))) == 3
    run.finish()
    assert len([each for each in read(Span) if each.name == "train.data_load"]) == 4
