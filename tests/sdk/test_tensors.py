"""Scalars of torch, jax and tensorflow."""

import math
from collections.abc import Callable
from typing import Any

import pytest

import stepscope
from stepscope.model.records import Metric, Record
from stepscope.sdk import tensors
from stepscope.sdk.resolve import CHANGED, Row, Transfer

Records = Callable[..., list[Record]]


@pytest.fixture
def torch() -> Any:
    """The real torch."""
    return pytest.importorskip("torch", reason="torch is not installed")


def resolve(**held: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Read held values the way the flusher does, and collect the refusals."""
    refused: dict[str, str] = {}
    transfer = Transfer([Row(0, 0, None, None, dict(held))])
    assert transfer.ready()
    rows = transfer.finish(lambda key, reason: refused.__setitem__(key, reason))
    return (rows[0].values if rows else {}), refused


def test_torch_dtypes_are_exact(torch: Any, run: stepscope.Run, records: Records) -> None:
    """Every dtype comes out as the number it holds."""
    run.log(
        {
            "bf16": torch.tensor(1.0078125, dtype=torch.bfloat16),
            "fp16": torch.tensor(0.333251953125, dtype=torch.float16),
            "f64": torch.tensor(0.1, dtype=torch.float64),
            "i64": torch.tensor(2**62 + 1),
            "bool": torch.tensor(True),
            "one": torch.ones(1, 1),
            "nan": torch.tensor(math.nan),
            "inf": torch.tensor(-math.inf),
        },
        step=0,
    )
    values = next(metric for metric in records(Metric) if "bf16" in metric.values).values
    assert math.isnan(float(values.pop("nan")))
    assert values == {
        "bf16": 1.0078125,
        "fp16": 0.333251953125,
        "f64": 0.1,
        "i64": 2**62 + 1,
        "bool": 1,
        "one": 1.0,
        "inf": -math.inf,
    }


def test_torch_vectors_are_refused(torch: Any, run: stepscope.Run, records: Records) -> None:
    """A tensor of several elements, or of none, is no number."""
    run.log({"a": torch.zeros(3), "b": torch.zeros(0), "c": torch.tensor(1j), "d": 1.0}, step=0)
    assert [metric.values for metric in records(Metric) if "d" in metric.values] == [{"d": 1.0}]
    counts = run.outcomes.snapshot()
    assert (counts["rejected/value/vector"], counts["rejected/value/complex"]) == (2, 1)


def test_a_fresh_result_is_held_without_its_graph(torch: Any) -> None:
    """From the second on, a fresh loss is held by reference, detached, and read later."""
    weight = torch.ones((), requires_grad=True)
    tensors.snapshot("fresh", weight * 2)
    loss = weight * 3
    held = tensors.snapshot("fresh", loss)
    assert held.value.data_ptr() == loss.data_ptr() and held.value.grad_fn is None
    assert resolve(loss=held) == ({"loss": 3.0}, {})


def test_a_held_result_changed_in_place_is_refused(torch: Any) -> None:
    """A value that was overwritten before it was read is counted, never recorded wrong."""
    tensors.snapshot("changed", torch.zeros(()) + 1)
    loss = torch.zeros(()) + 2
    held = tensors.snapshot("changed", loss)
    loss.add_(5)
    assert resolve(loss=held) == ({}, {"loss": CHANGED})


@pytest.mark.parametrize("case", ["first", "again", "view", "changed before", "inference"])
def test_what_may_change_is_cloned(torch: Any, case: str) -> None:
    """The first value of a key, one logged again, a view, an accumulator, an inference tensor: all are copied."""
    key = f"clone {case}"
    if case != "first":
        tensors.snapshot(key, torch.zeros(()))
    value = torch.zeros(())
    if case == "view":
        value = torch.zeros(4)[1]
    elif case == "changed before":
        value += 0
    elif case == "inference":
        with torch.inference_mode():
            value = torch.zeros(())
    elif case == "again":
        tensors.snapshot(key, value)
    held = tensors.snapshot(key, value)
    with torch.inference_mode():
        value.add_(7)
    assert resolve(a=held) == ({"a": 0.0}, {})


def test_jax_scalars(run: stepscope.Run, records: Records) -> None:
    """jax arrays are held and read when they are computed; vectors are refused."""
    jnp = pytest.importorskip("jax.numpy", reason="jax is not installed")
    run.log({"a": jnp.float32(1.5) * 2, "i": jnp.int32(7), "v": jnp.zeros(3), "nan": jnp.log(-1.0)}, step=3)
    run.finish()
    values = next(metric for metric in records(Metric) if "a" in metric.values).values
    assert math.isnan(float(values.pop("nan"))) and values == {"a": 3.0, "i": 7}


def test_tensorflow_scalars(run: stepscope.Run, records: Records) -> None:
    """Tensors are held; a variable is read at its present value."""
    tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed")
    variable = tf.Variable(2.0)
    run.log({"a": tf.constant(1.5), "var": variable, "v": tf.zeros(3)}, step=3)
    variable.assign(9.0)
    run.finish()
    values = next(metric for metric in records(Metric) if "a" in metric.values).values
    assert values == {"a": 1.5, "var": 2.0}
