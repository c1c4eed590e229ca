"""Values that contradict each other are named, and those that only look like it are left alone."""

import math
import random
from typing import Any

import pytest

from stepscope.diagnosis.finding import Finding
from tests.diagnosis.detectors.test_held_out_and_runaway import Logged, Values, found_in, learning


def classifier(floor: float, right: float, first: float = math.log(10)) -> Logged:
    """A loss that falls from that of guessing to a floor, and an accuracy that rises with it."""

    def values(step: int, rng: random.Random) -> Values:
        left = math.exp(-step / 60)
        loss = floor + (first - floor) * left + (0.02 * rng.random() if step else 0.0)
        return {"train/loss": loss, "train/acc": min(right - (right - 0.1) * left + 0.02 * rng.random(), 1.0)}

    return values


@pytest.mark.parametrize("classes", [4, 10, 100])
def test_a_softmax_that_is_applied_twice_is_named(classes: int) -> None:
    """The loss stays where probabilities that are taken for logits have their floor, and the accuracy is high."""
    floor = math.log(1 + (classes - 1) / math.e)
    (found,) = found_in(classifier(1.02 * floor, 0.95, math.log(classes)))
    assert found.kind == "absurd_loss"
    assert "softmax is applied twice" in found.cause


@pytest.mark.parametrize(
    ("floor", "right"), [(0.2, 0.95), (1.49, 0.5), (0.6, 0.93)], ids=["learnt", "hard", "smoothed labels"]
)
def test_a_loss_that_fits_its_accuracy_is_left_alone(floor: float, right: float) -> None:
    """A low one, one of a hard task at the same level, and the floor of smoothed labels."""
    assert not found_in(classifier(floor, right))


def held_out(loss: float, right: float, later: float = 0.0) -> Logged:
    """A training that learns, and evaluations at a level of their own from an evaluation on."""

    def values(step: int, rng: random.Random) -> Values:
        found = {"train/loss": learning(step, rng) / 3, "train/acc": 1 - 0.8 * math.exp(-step / 20)}
        if step % 30 == 29:
            same = step < later
            found["val/loss"] = found["train/loss"] if same else loss * (1 - step / 3000) * rng.lognormvariate(0, 0.01)
            found["val/acc"] = found["train/acc"] - 0.02 if same else right
        return found

    return values


def test_an_evaluation_that_is_far_off_from_the_first_on_is_named() -> None:
    """Held-out data that is prepared otherwise; one that follows at first is another matter."""
    (found,) = found_in(held_out(2.0, 0.5))
    assert (found.kind, found.severity, found.key) == ("generalization_gap", "WARN", "val/loss")
    assert "normalisation" in found.cause
    assert "generalization_gap" not in {each.kind for each in found_in(held_out(2.0, 0.5, later=100))}
    assert not found_in(held_out(0.5, 0.9))


def language(config: dict[str, Any], held_out: float, fall: float) -> list[Finding]:
    """Diagnose a loss that falls from that of guessing among 64 words, and a held-out one at another level."""

    def values(step: int, rng: random.Random) -> Values:
        guess = math.log(64)
        floor = 0.7 * guess if fall < 0.05 else 0.0
        found = {"loss": max(guess * math.exp(-step * fall), floor) + 0.01 * rng.random()}
        if step % 30 == 29:
            found["eval/loss"] = held_out * rng.lognormvariate(0, 0.005)
        return found

    return found_in(values, config=config)


def test_a_held_out_loss_of_guessing_is_named_where_the_classes_are_known() -> None:
    """It was never better, while the training loss is; without a known number of classes nobody can tell."""
    known = language({"vocab_size": 64}, math.log(64) * 1.02, 0.004)
    assert [each.kind for each in known if "guessing among" in each.text] == ["not_learning"]
    assert not [each for each in language({}, math.log(64) * 1.02, 0.004) if "guessing among" in each.text]


def test_a_language_that_is_learnt_at_once_is_too_good() -> None:
    """Nothing is left of the loss after some hundred steps: the targets are in the inputs."""
    found = language({"vocab_size": 64}, 0.02, 0.06)
    assert [each.cause for each in found if each.kind == "too_good"] == [
        "the targets are in the inputs: not shifted by one"
    ]
    assert not [each for each in language({"vocab_size": 64}, 1.5, 0.004) if each.kind == "too_good"]
    assert not [each for each in language({}, 0.02, 0.06) if "not shifted" in each.cause]


@pytest.mark.parametrize(
    ("key", "found", "named"),
    [
        ("train_dice", 0.0, True),
        ("val/f1", 0.0, True),
        ("val/mIoU", 0.02, False),
        ("eval_exact_match", 0.0, False),
        ("precision_loss", 0.0, False),
    ],
)
def test_a_class_that_is_never_predicted_is_named(key: str, found: float, named: bool) -> None:
    """An overlap that is 0 while the loss falls and settles; a share of exact answers may be 0 for long."""

    def values(step: int, rng: random.Random) -> Values:
        logged = {"train/loss": 0.1 + 0.6 * math.exp(-step / 30) + 0.01 * rng.random()}
        if key.startswith("train") or step % 20 == 19:
            logged[key] = found
        return logged

    kinds = [each.kind for each in found_in(values) if each.key == key]
    assert kinds == (["not_learning"] if named else [])


@pytest.mark.parametrize(("fall", "kinds"), [(0.5, ["posterior_collapse"]), (0.15, [])], ids=["halves", "drifts"])
def test_embeddings_that_begin_to_become_equal_are_named_early(fall: float, kinds: list[str]) -> None:
    """A spread that was kept for two hundred steps and then halves; one that drifts goes on."""

    def values(step: int, rng: random.Random) -> Values:
        spread = 0.2 * (1 - fall * (1 - math.exp(-max(step - 200, 0) / 60)))
        return {"ssl/loss": learning(step, rng), "ssl/embedding_std": spread * rng.lognormvariate(0, 0.02)}

    found = found_in(values, 420)
    assert [each.kind for each in found] == kinds
    assert all(180 <= (each.step or 0) <= 230 and "the same embedding" in each.cause for each in found)


@pytest.mark.parametrize(("left", "kinds"), [(0.05, ["posterior_collapse"]), (0.5, [])], ids=["collapses", "shrinks"])
def test_embeddings_that_become_equal_are_named(left: float, kinds: list[str]) -> None:
    """Their spread falls to nearly nothing; that it halves while they are learnt is usual."""

    def values(step: int, rng: random.Random) -> Values:
        spread = 0.2 * (left + (1 - left) * math.exp(-max(step - 60, 0) / 30))
        return {"ssl/loss": learning(step, rng), "ssl/embedding_std": spread * rng.lognormvariate(0, 0.02)}

    found = found_in(values)
    assert [each.kind for each in found] == kinds
    assert all(60 <= (each.step or 0) <= 120 and "the same embedding" in each.cause for each in found)


def test_the_entropy_of_a_router_is_none_of_a_policy() -> None:
    """Its collapse is an imbalance of experts, unless their load is logged and tells more."""

    def values(step: int, rng: random.Random) -> Values:
        entropy = 0.05 + 1.7 * math.exp(-max(step - 100, 0) / 10)
        return {"loss": learning(step, rng), "moe/router_entropy": entropy * rng.lognormvariate(0, 0.02)}

    (found,) = found_in(values)
    assert (found.kind, found.key) == ("moe_imbalance", "moe/router_entropy")
    assert not found_in(lambda step, rng: {**values(step, rng), "moe/max_load": 0.2 + 0.01 * rng.random()})


@pytest.mark.parametrize(("level", "named"), [(0.0, True), (0.02, False)], ids=["never", "now and then"])
def test_a_solved_training_without_any_right_answer_is_named(level: float, named: bool) -> None:
    """The decoder was given what it has to write; answers that are right now and then are another matter."""

    def values(step: int, rng: random.Random) -> Values:
        found = {"train_loss": 2.3 * math.exp(-step / 20) + 0.001 * rng.random()}
        return found | ({"val_exact_match": level * (step % 40 == 39)} if step % 20 == 19 else {})

    found = [each for each in found_in(values, 400) if each.kind == "generalization_gap"]
    assert [each.key for each in found] == ["val_exact_match"] * named
    assert all("the answer can be seen" in each.cause for each in found)


@pytest.mark.parametrize(
    ("key", "level", "named"),
    [("valid_auc", 0.9997, True), ("val/ndcg@10", 1.0, True), ("valid_auc", 0.99, False), ("val_acc", 1.0, False)],
)
def test_a_ranking_that_is_perfect_at_once_is_named(key: str, level: float, named: bool) -> None:
    """An input tells the target; an accuracy of classes that are far apart may be perfect."""

    def values(step: int, rng: random.Random) -> Values:
        found = {"logloss": learning(step, rng)}
        return found | ({key: min(level + 1e-4 * rng.random(), 1.0)} if step % 40 == 39 else {})

    found = [each for each in found_in(values, 400) if each.kind == "too_good"]
    assert [each.key for each in found] == [key] * named


def test_a_ranking_that_becomes_perfect_is_left_alone() -> None:
    """It was learnt, or comes late in the run."""
    slow = {at: 1 - 0.3 * math.exp(-at / 30) for at in range(400)}
    for first in (0, 200):
        found = found_in(
            lambda step, rng, first=first: (
                {"logloss": learning(step, rng)}
                | ({"valid_auc": 1.0 if first else slow[step]} if step % 40 == 39 and step >= first else {})
            ),
            400,
        )
        assert "too_good" not in {each.kind for each in found}


@pytest.mark.parametrize(
    ("first", "beside", "config", "named"),
    [
        (60.0, {}, {"vocab_size": 5000}, True),
        (60.0, {"train/perplexity": 30.0}, {}, True),
        (60.0, {}, {}, False),
        (9.0, {}, {"vocab_size": 5000}, False),
    ],
    ids=["configured", "by its perplexity", "of an unknown task", "near guessing"],
)
def test_a_language_model_that_begins_far_above_guessing_is_named(
    first: float, beside: Values, config: dict[str, Any], named: bool
) -> None:
    """Its last layer shares an embedding that begins far too wide."""

    def values(step: int, rng: random.Random) -> Values:
        return {"train/loss": 2.0 + (first - 2.0) * math.exp(-step / 30) * rng.lognormvariate(0, 0.03), **beside}

    found = [each.kind for each in found_in(values, 300, config=config)]
    assert ("absurd_loss" in found) == named


@pytest.mark.parametrize(
    ("key", "named"),
    [("train/kd_loss", True), ("train/mse", True), ("train/neg_mse", False), ("train/distill_loss", False)],
)
def test_a_distance_below_zero_is_named(key: str, named: bool) -> None:
    """No square, distance or divergence is negative; other losses may be."""
    found = found_in(lambda step, rng: {key: -5.6 - 0.5 * step / 300 + 0.1 * rng.random()})
    assert [each.kind for each in found] == ["absurd_loss"] * named


def test_an_estimate_of_a_divergence_may_be_below_zero_now_and_then() -> None:
    """It is of few samples."""
    assert found_in(lambda step, rng: {"kl_loss": 0.02 * math.exp(-step / 50) + 0.05 * rng.gauss(0, 1)}) == []


def test_a_held_out_perplexity_is_compared_with_the_number_of_classes() -> None:
    """Guessing among twelve words has a perplexity of 12, and a loss of 2.5."""

    def values(level: float) -> Logged:
        def logged(step: int, rng: random.Random) -> Values:
            found = {"train/loss": 1.05 + 1.4 * math.exp(-step / 40) + 0.02 * rng.random()}
            near = level + (12 - level) * math.exp(-step / 40) if level < 12 else level * (1 + step / 100)
            return found | ({"val/perplexity": near * rng.lognormvariate(0, 0.01)} if step % 20 == 19 else {})

        return logged

    assert not found_in(values(2.9), config={"vocab_size": 12})
    told = [each for each in found_in(values(12.4), config={"vocab_size": 12}) if each.kind == "not_learning"]
    assert [each.expected for each in told] == [(0.0, 12)]


def areas(*first: float, then: float = 1.0) -> list[str]:
    """An area under a curve at every 25th step, beside a loss that falls."""

    def values(step: int, rng: random.Random) -> Values:
        found = {"train/logloss": 0.4 * math.exp(-step / 60) + 0.01 + 0.01 * rng.random()}
        at = step // 25
        return found | ({"valid/auc": first[at] if at < len(first) else then} if step % 25 == 24 else {})

    return [each.kind for each in found_in(values)]


def test_an_area_under_a_curve_without_an_error_is_named() -> None:
    """All but the first evaluations are perfect: a column tells the target; one that only comes near may be honest."""
    assert areas(0.93, 0.9991) == ["too_good"]
    assert areas(0.93, 0.98, then=0.997) == []
    assert areas(0.7, 0.8, 0.85, 0.9, 0.95) == []
    assert areas(0.5, 0.99) == []


def scores(first: float, last: float, right: float) -> list[str]:
    """A loss that falls from one value to another, and an accuracy that rises to one."""

    def values(step: int, rng: random.Random) -> Values:
        left = math.exp(-step / 25)
        loss = (last + (first - last) * left) * rng.lognormvariate(0, 0.1)
        return {"train_loss": loss, "train_accuracy": min(0.3 + (right - 0.3) * (1 - left) + 0.05 * rng.random(), 1.0)}

    return [each.kind for each in found_in(values)]


def test_scores_that_begin_far_too_large_are_named() -> None:
    """A loss of thousands that falls to hundreds while hardly more is right; one that is summed falls as more is."""
    assert scores(45000, 20, 0.4) == ["absurd_loss"]
    assert scores(300, 5, 0.98) == []
    assert scores(2.3, 0.2, 0.4) == []


@pytest.mark.parametrize(("found", "named"), [(0.0, ["not_learning"]), (0.01, [])])
def test_nothing_that_is_found_in_any_epoch_is_named_after_thirty(found: float, named: list[str]) -> None:
    """One value an epoch, beside a held-out loss that falls as that of the training does."""

    def values(step: int, rng: random.Random) -> Values:
        loss = 0.1 + 0.6 * math.exp(-step / 8) + 0.01 * rng.random()
        return {"train/box_loss": loss, "val/box_loss": loss + 0.01, "metrics/mAP50(B)": found, "lr/pg0": 0.01}

    assert [each.kind for each in found_in(values, 50) if each.key == "metrics/mAP50(B)"] == named


def ranking(level: float, rise: float = 0.0) -> Logged:
    """A loss that falls a little, and an area under a curve at each tenth step."""

    def values(step: int, rng: random.Random) -> Values:
        found = {"train/loss": 0.3 + 0.3 * math.exp(-step / 40) + 0.02 * rng.random()}
        if step % 10 == 9:
            found["val/auc"] = min(level + rise * step + 0.01 * rng.random(), 0.9)
        return found

    return values


def test_a_ranking_that_is_never_better_than_chance_is_named() -> None:
    """At chance or below it, in all of ten evaluations."""
    for level in (0.33, 0.49):
        found = [each for each in found_in(ranking(level)) if each.key == "val/auc"]
        assert [each.kind for each in found] == ["not_learning"], found


def test_a_ranking_that_comes_up_late_or_is_weak_is_left_alone() -> None:
    """One that rises, and one that is a little better than chance."""
    assert not [each for each in found_in(ranking(0.48, 0.0006)) if each.key == "val/auc"]
    assert not [each for each in found_in(ranking(0.58)) if each.key == "val/auc"]


def overlap(floor: float, found_from: int = 10_000) -> Logged:
    """A loss that falls to a floor, and a Dice at each fortieth step that is 0 until a step."""

    def values(step: int, rng: random.Random) -> Values:
        values = {"train_loss": floor + (0.8 - floor) * math.exp(-step / 20) + 0.05 * floor * rng.random()}
        if step % 40 == 0:
            values["val_dice"] = 0.08 if step == 0 else 0.0 if step < found_from else 0.6
        return values

    return values


def test_an_overlap_of_nothing_is_named_after_six_evaluations() -> None:
    """Where hardly any loss is left; with a loss that is still high it may be found yet."""
    (found,) = found_in(overlap(0.01), steps=320)
    assert (found.kind, found.step) == ("not_learning", 40)
    assert not found_in(overlap(0.2), steps=320)
    assert not found_in(overlap(0.01, found_from=160), steps=320)


def told_answers(tau: float) -> Logged:
    """A loss of tokens in bits, with its perplexity, that falls to nothing."""

    def values(step: int, rng: random.Random) -> Values:
        bits = 3.5 * math.exp(-step / tau) + 0.001 * rng.uniform(0.9, 1.1)
        return {"nll_loss": bits, "ppl": 2**bits}

    return values


def test_tokens_that_are_all_known_at_once_are_named_without_a_vocabulary() -> None:
    """A perplexity tells that the loss is one of tokens; one that takes hundreds of steps may be learnt."""
    assert "too_good" in [each.kind for each in found_in(told_answers(8))]
    assert "too_good" not in [each.kind for each in found_in(told_answers(60))]


def apart(times: float, falls: float) -> Logged:
    """A loss that falls, and a held-out one at each thirtieth step, so many times as high; it falls by a share."""

    def values(step: int, rng: random.Random) -> Values:
        loss = (0.1 + 0.4 * math.exp(-step / 50)) * rng.lognormvariate(0, 0.05)
        if step % 30 != 29:
            return {"train_loss_step": loss}
        return {"train_loss_step": loss, "val_loss": times * (0.32 - falls * 0.2 * min(step / 200, 1))}

    return values


def test_a_held_out_loss_that_never_learns_is_named_without_an_accuracy() -> None:
    """It is far above the training's at the first evaluation and never lower; where it falls too it is only harder."""
    assert ("generalization_gap", "val_loss", 29) in [(e.kind, e.key, e.step) for e in found_in(apart(3.0, 0.0))]
    assert not found_in(apart(3.0, 0.3))
    assert "generalization_gap" not in [each.kind for each in found_in(apart(1.2, 0.0))]
