"""Folding: a symptom goes into its cause, and never into a finding of another rank or one that costs less."""

import pytest

from stepscope.diagnosis import registry
from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.folding import fold

KINDS = registry.kinds()


def finding(kind: str, rank: int, step: int, lost: float, last: int | None = None) -> Finding:
    """A rank that lost so many seconds."""
    return Finding(
        kind, "WARN", f"{kind} on rank {rank}", step=step, last=last, ranks=(rank,), span="load", value=lost + 1.0,
        expected=(0.5, 1.0),
    )  # fmt: skip


@pytest.mark.parametrize("late", ["straggler", "intermittent_straggler", "periodic_stall"])
@pytest.mark.parametrize(
    ("rank", "lost", "folded"), [(1, 2.0, True), (1, 20.0, False), (2, 2.0, False), (2, 20.0, False)]
)
def test_a_stall_is_a_symptom_of_its_own_rank_only(late: str, rank: int, lost: float, folded: bool) -> None:
    """A stall of another rank, or one that cost far more than the rank that is late, is a finding of its own."""
    kinds = [each.kind for each in fold([finding(late, 1, 10, 1.0), finding("data_stall", rank, 40, lost)], KINDS, {})]
    assert kinds == ([late] if folded else [late, "data_stall"])


@pytest.mark.parametrize(("step", "lost", "folded"), [(40, 0.9, True), (40, 3.0, False), (43, 0.9, False)])
def test_ranks_that_wait_for_a_stalled_one_are_its_symptoms(step: int, lost: float, folded: bool) -> None:
    """Waiting ranks are symptoms if they wait in the same step, not longer than the stall."""
    found = fold([finding("data_stall", 0, 40, 1.0), finding("slow_span", 3, step, lost)], KINDS, {})
    assert [each.kind for each in found] == (["data_stall"] if folded else ["data_stall", "slow_span"])


def test_a_rank_that_is_late_now_and_then_is_not_folded_into_another_that_always_is() -> None:
    """Two ranks are two findings."""
    found = fold([finding("straggler", 1, 10, 1.0), finding("intermittent_straggler", 2, 40, 1.0)], KINDS, {})
    assert [each.ranks for each in found] == [(1,), (2,)]


@pytest.mark.parametrize(
    ("cause", "other", "shows", "folded"),
    [
        ("stuck_batch", "too_good", 300, True),
        ("stuck_batch", "too_good", 200, False),
        ("gradients_not_cleared", "gradient_shift", 370, True),
        ("lr_zero", "plateau", 300, False),
    ],
)
def test_what_is_seen_in_samples_is_dated_by_what_it_does(cause: str, other: str, shows: int, folded: bool) -> None:
    """Equal inputs are seen at step 350 and the loss falls since 300: one finding, at the first of them."""
    sampled = Finding(cause, "ERROR", "it is so since step 350", step=350, last=360, ranks=(0,), key="input")
    curve = Finding(other, "WARN", f"the loss tells since {shows}", step=shows, last=400, ranks=(0,), key="loss")
    found = fold([sampled, curve], KINDS, {})
    assert len(found) == (1 if folded else 2)
    if folded:
        assert (found[0].kind, found[0].step, found[0].symptoms) == (cause, min(shows, 350), (curve.text,))
        assert ("shows since step 300" in found[0].text) is (shows < 350)


def layer(name: str, step: int = 10, severity: str = "WARN") -> Finding:
    """A fault of a layer."""
    return Finding("update_ratio", severity, f"{name} is small", step=step, last=step + 4, ranks=(0,), key=name)  # type: ignore[arg-type]


def test_the_same_fault_of_many_layers_is_one_finding_that_names_them() -> None:
    """The worst one, with the names of the others; two layers, and those of another time, stay apart."""
    layers = [layer(f"update_ratio/layers.{at}.mlp", step=10 + at % 3) for at in range(48)]
    worst = layer("update_ratio/layers.7.attn", severity="ERROR")
    (found,) = fold([*layers, worst], KINDS, {})
    assert (found.severity, found.key, found.step, len(found.also)) == ("ERROR", worst.key, 10, 16)
    assert found.text.endswith("and 43 more")
    assert len(fold(layers[:2], KINDS, {})) == 2
    assert len(fold([*layers[:3], layer("update_ratio/head", step=90)], KINDS, {})) == 2
    assert len(fold([layer("a/x"), layer("b/y"), layer("c/z")], KINDS, {})) == 3


@pytest.mark.parametrize("name", ["loss_{}", "task{}_loss", "{}-loss", "loss.{}"])
def test_metrics_that_change_together_are_one_finding(name: str) -> None:
    """Twenty metrics with similar names, without folders: the first few are named, and how many more there are."""
    names = [name.format(at) for at in range(20)]
    shifts = [shift(each, 150 + at % 5) for at, each in enumerate(names)]
    (found,) = fold(shifts, KINDS, {})
    assert (found.kind, found.step, len(found.also)) == ("level_shift", 150, 16)
    assert found.text.startswith(f"{names[0]} went up; the same in {names[5]}, ")
    assert found.text.endswith(" and 14 more")


def shift(name: str, step: int, ranks: tuple[int, ...] = (0,)) -> Finding:
    """A metric that went up and stayed there."""
    return Finding("level_shift", "WARN", f"{name} went up", step=step, last=step + 30, ranks=ranks, key=name)


def test_many_metrics_with_any_names_that_change_together_are_one_finding() -> None:
    """Six of one kind are one; fewer, and those of another time or rank, stay apart."""
    names = ["loss", "kl", "seg/box", "aux_3", "depth of flow", "iou"]
    together = [shift(each, 150) for each in names]
    (found,) = fold(together, KINDS, {})
    assert found.text == "loss went up; the same in kl, seg/box, aux_3, depth of flow, iou"
    assert len(fold(together[:5], KINDS, {})) == 5
    assert len(fold([*together[:5], shift("iou", 190)], KINDS, {})) == 6
    assert len(fold([*together[:5], shift("iou", 150, (1,))], KINDS, {})) == 6


def test_values_that_are_not_finite_keep_their_origin() -> None:
    """A kind with an origin stays with it: the first metric that was NaN, not the worst of all."""
    bad = [
        Finding("not_finite", "FATAL", f"{name} is NaN", step=10 + at, ranks=(0,), key=name, weight=1.0 + at)
        for at, name in enumerate(["grad_norm", "loss_a", "loss_b", "loss_c"])
    ]
    assert [each.key for each in fold(bad, KINDS, {})] == ["grad_norm"]
