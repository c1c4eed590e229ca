"""Scalars of torch, jax and tensorflow."""

import math
from collections.abc import Callable
from typing import Any

import pytest

import stepscope
from stepscope.model.records import Metric, Record
from stepscope.sdk import tensors
from stepscope.sdk.tensors import Row, Transfer

Records = Callable[..., list[Record]]


@pytest.fixture
def torch() -> Any:
    """The real torch."""
    return pytest.importorskip("torch", reason="torch is not installed")


def resolve(**held: tensors.Held) -> dict[str, Any]:
    """Freeze values as a call does, spoil what they came from, and read them the way the flusher does."""
    sources = [each.value for each in held.values()]
    tensors.freeze(held.values())
    for source in sources:
        source.data.fill_(99)
    transfer = Transfer([Row(0, 0, None, None, dict(held))])
    assert transfer.ready()
    (row,) = transfer.finish(lambda key, reason: pytest.fail(f"{key}: {reason}"))
    return row.values


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


def test_held_tensors_keep_their_value(torch: Any) -> None:
    """What is written to a tensor after the call, even past torch's own count of changes, is not recorded."""
    weight = torch.ones((), requires_grad=True)
    values = {"loss": weight * 3, "bf16": torch.tensor(0.5, dtype=torch.bfloat16), "ok": torch.tensor(True)}
    values |= {"n": torch.tensor(2**53 + 1), "small": torch.tensor([7], dtype=torch.int8)}
    assert resolve(**{key: tensors.Held("torch", value) for key, value in values.items()}) == {
        "loss": 3.0,
        "bf16": 0.5,
        "ok": 1.0,
        "n": 2**53 + 1,
        "small": 7,
    }


def test_a_single_held_tensor(torch: Any) -> None:
    """One tensor alone is copied too, without its graph."""
    held = tensors.Held("torch", torch.ones((), requires_grad=True) * 4)
    assert resolve(loss=held) == {"loss": 4.0}
    assert not held.value.requires_grad


def test_inference_tensors_are_held(torch: Any) -> None:
    """Tensors made in inference mode are copied like any other."""
    with torch.inference_mode():
        assert resolve(a=tensors.Held("torch", torch.ones(()) * 2)) == {"a": 2.0}


def test_jax_scalars(run: stepscope.Run, records: Records) -> None:
    """Jax arrays are held and read when they are computed; vectors are refused."""
    jnp = pytest.importorskip("jax.numpy", reason="jax is not installed")
    run.log({"a": jnp.float32(1.5) * 2, "i": jnp.int32(7), "v": jnp.zeros(3), "nan": jnp.log(-1.0)}, step=3)
    run.finish()
    values = next(metric for metric in records(Metric) if "a" in metric.values).values
    assert math.isnan(float(values.pop("nan")))
    assert values == {"a": 3.0, "i": 7}


def test_tensorflow_scalars(run: stepscope.Run, records: Records) -> None:
    """Tensors are held; a variable is read at its present value."""
    tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed")
    variable = tf.Variable(2.0)
    run.log({"a": tf.constant(1.5), "var": variable, "v": tf.zeros(3)}, step=3)
    variable.assign(9.0)
    run.finish()
    values = next(metric for metric in records(Metric) if "a" in metric.values).values
    assert values == {"a": 1.5, "var": 2.0}


def test_a_tensor_without_memory_costs_only_itself(torch: Any, run: stepscope.Run, records: Records) -> None:
    """A tensor without memory is rejected in the call; the other values are kept."""
    run.log({"loss": 0.25, "cpu": torch.tensor(1.0), "odd": torch.ones((), device="meta")}, step=0)
    assert [m.values for m in records(Metric) if "loss" in m.values] == [{"loss": 0.25, "cpu": 1.0}]
    assert run.outcomes.snapshot()["rejected/value/on device meta, which holds no values"] == 1


def test_a_tensor_that_cannot_be_read_costs_only_itself(torch: Any) -> None:
    """What a device refuses to give is rejected; other values of the same round are kept."""
    odd, well = tensors.Held("torch", torch.ones((), device="meta")), tensors.Held("torch", torch.ones(()))
    refused: list[tuple[str, str]] = []
    transfer = Transfer([Row(0, 0, None, None, {"odd": odd, "a": 1.0}), Row(0, 1, None, None, {"b": well})])
    assert transfer.ready()
    rows = transfer.finish(lambda key, reason: refused.append((key, reason)))
    assert [row.values for row in rows] == [{"a": 1.0}, {"b": 1.0}]
    assert refused == [("odd", "unreadable NotImplementedError")]
