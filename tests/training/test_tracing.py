"""Tracing beyond the document's examples: functions of every sort, and PyTorch that is timed by itself."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from types import ModuleType
from typing import Any

import pytest

import stepscope
from stepscope.model.records import Span
from stepscope.training.tracing import setup_tracing, trace_function
from tests.training.conftest import Read


def ends(read: Read) -> list[tuple[str, Any, int]]:
    """The spans of calls, and how these ended."""
    found = [each for each in read(Span) if "function" in each.attrs]
    return [(each.name, each.attrs["result.status"], each.status) for each in found]


def test_generators(run: stepscope.Run, read: Read) -> None:
    """The span lasts as long as they do; one that raises failed, one that is left did not."""

    @trace_function
    def items(most: int) -> Iterator[int]:
        yield from range(most)
        raise ValueError("no more")

    @trace_function(None)
    async def stream() -> AsyncIterator[int]:
        yield 1
        raise KeyError("x")

    async def gather() -> None:
        async for _ in stream():
            pass

    with pytest.raises(ValueError, match="no more"):
        list(items(2))
    with pytest.raises(KeyError):
        asyncio.run(gather())
    left = items(5)
    next(left)
    assert ends(read) == [("items", "error", 2), ("stream", "error", 2)]
    left.close()  # type: ignore[attr-defined]
    assert ends(read)[-1][:2] == ("items", "success")


def test_methods_of_classes(run: stepscope.Run, read: Read) -> None:
    """The decorator may stand above those of Python."""

    class Model:
        @trace_function
        @staticmethod
        def load() -> int:
            return 5

        @trace_function
        @classmethod
        def make(cls) -> type:
            return cls

    assert (Model.load(), Model().load(), Model.make(), Model().make()) == (5, 5, Model, Model)
    assert ends(read) == [("load", "success", 0)] * 2 + [("make", "success", 0)] * 2


@pytest.fixture
def torch() -> Iterator[Any]:
    """PyTorch, timed by nobody before and after."""
    found = pytest.importorskip("torch", reason="torch is not installed")
    from stepscope.integrations.torch import uninstrument

    uninstrument()
    yield found
    uninstrument()


def train(torch: Any) -> None:
    """One step of a small model."""
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()


def test_pytorch_is_timed(torch: Any, read: Read) -> None:
    """From `setup_tracing`, once, until the provider is shut down; a run that was joined goes on without."""
    stepscope.init(otel=False)
    provider, second = setup_tracing(otlp_endpoint=None), setup_tracing(otlp_endpoint=None)
    train(torch)
    names = [each.name for each in read(Span)]
    assert names.count("train.optimizer_step") == 1
    assert "train.forward" in names
    assert provider is not None
    assert second is not None
    second.shutdown()
    train(torch)
    assert [each.name for each in read(Span)].count("train.optimizer_step") == 2
    provider.shutdown()
    train(torch)
    assert [each.name for each in read(Span)].count("train.optimizer_step") == 2


def test_the_end_of_the_run_ends_the_timing(torch: Any, read: Read) -> None:
    """The timing ends with the run, however it ends, and does not continue in the next."""
    setup_tracing(otlp_endpoint=None)
    stepscope.finish()
    stepscope.init(otel=False)
    train(torch)
    assert read(Span) == []


def test_pytorch_is_left_alone_when_asked(torch: Any, read: Read) -> None:
    """With the argument, or where somebody timed it with options of their own, which stay after the end."""
    from stepscope.integrations.torch import instrument

    provider = setup_tracing(otlp_endpoint=None, torch=False)
    train(torch)
    assert read(Span) == []
    assert provider is not None
    provider.shutdown()
    instrument(modules=False, grad_norm=0)
    provider = setup_tracing(otlp_endpoint=None)
    assert provider is not None
    train(torch)
    assert [each.name for each in read(Span)] == ["train.optimizer_step"]
    provider.shutdown()
    stepscope.init(otel=False)
    train(torch)
    assert [each.name for each in read(Span)] == ["train.optimizer_step"]


def test_a_torch_that_cannot_be_timed_does_not_stop_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure to time torch is counted; torch is never imported for it."""
    for name in [each for each in sys.modules if each.startswith("stepscope.integrations.torch")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    assert setup_tracing(otlp_endpoint=None) is not None
    run = stepscope.current_run()
    assert run is not None
    assert [name for name in run.outcomes.snapshot() if name.startswith("failed/torch/")]
    stepscope.finish()
    monkeypatch.delitem(sys.modules, "torch")
    assert setup_tracing(otlp_endpoint=None) is not None
    assert "torch" not in sys.modules
