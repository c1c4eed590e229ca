"""Vocabularies: the default metric names of frameworks, as listed in names_by_framework.txt."""

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.zoo import evaluate
from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.roles import Role, recognised, role_of
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.diagnosis.vocabularies import ALL
from stepscope.model.records import Metric

LIST = Path(__file__).with_name("names_by_framework.txt")


def listed() -> Iterator[tuple[str, str, Role]]:
    """Yield framework, name and role."""
    framework = ""
    for line in LIST.read_text().splitlines():
        if line.startswith("["):
            framework = line.strip("[]")
        elif " =" in line and not line.startswith("#"):
            name, _, role = line.rpartition(" =")
            told = role.strip()
            held_out = told.endswith(", held out")
            yield framework, name.strip(), Role(told.removesuffix(", held out"), held_out)


NAMES = list(listed())


def test_default_names_have_their_role() -> None:
    """Of the default names of the frameworks at least 95 % get the right role."""
    wrong = [(where, name, role, got) for where, name, role in NAMES if (got := role_of(name, where)) != role]
    assert len(NAMES) >= 263
    assert len(wrong) <= 0.05 * len(NAMES), wrong


def test_most_names_need_no_framework() -> None:
    """A run whose framework is not recognised, or not yet, gets at least 90 % of the roles right too."""
    wrong = [(where, name, role, got) for where, name, role in NAMES if (got := role_of(name)) != role]
    assert len(wrong) <= 0.1 * len(NAMES), wrong


def test_no_name_gets_a_role_that_alarms_for_another() -> None:
    """No name that means something else is taken for a clip fraction, a KL of updates or a throughput."""
    alarming = {"clip_fraction", "kl", "throughput", "loss", "reward"}
    wrong = [
        (where, name)
        for where, name, role in NAMES
        if (got := role_of(name, where)).name in alarming and got.name != role.name
    ]
    assert not wrong


@pytest.mark.parametrize("vocabulary", ALL, ids=lambda each: each.name)
def test_a_framework_is_recognised_by_its_names(vocabulary: object) -> None:
    """The names a framework logs recognise it, and no other framework."""
    by_framework = defaultdict(set)
    for where, name, _ in NAMES:
        by_framework[where].add(name)
    found = {where for where, names in by_framework.items() if recognised(sorted(names)) is vocabulary}
    assert found <= {vocabulary.name}  # type: ignore[attr-defined]
    assert found or vocabulary.name not in by_framework or recognised(sorted(vocabulary.signs)) is vocabulary  # type: ignore[attr-defined]


def found_in(values: Callable[[int, random.Random], dict[str, float]], steps: int = 400) -> list[Finding]:
    """Diagnose a run that logs these values at each step."""
    diagnosis, rng = Diagnosis(), random.Random(1)
    for step in range(steps):
        diagnosis.feed(0, Metric(1_000_000_000 * (step + 1), step, None, None, values(step, rng)))
    return diagnosis.findings()


def verl(step: int, rng: random.Random) -> dict[str, float]:
    """A healthy run of verl with one update per batch."""
    return {
        "actor/pg_loss": rng.gauss(0, 0.02),
        "actor/pg_clipfrac": 0.0,
        "actor/pg_clipfrac_lower": 0.0,
        "actor/entropy": 0.6 * math.exp(-step / 900) * rng.uniform(0.95, 1.05),
        "actor/kl_loss": 0.002 * step * rng.uniform(0.9, 1.1),
        "critic/score/mean": min(0.2 + step / 800, 0.6) + rng.gauss(0, 0.03),
        "response_length/mean": 300 + rng.gauss(0, 20),
        "response_length/clip_ratio": 0.0,
        "prompt_length/clip_ratio": 0.0,
        "perf/time_per_step": 60 * rng.uniform(0.99, 1.01) * (0.75 if step > 200 else 1.0),
    }


def trl(step: int, rng: random.Random) -> dict[str, float]:
    """A healthy run of TRL's GRPO."""
    return {
        "loss": rng.gauss(0, 0.02),
        "reward": min(0.2 + step / 800, 0.6) + rng.gauss(0, 0.03),
        "kl": 0.01 * step * rng.uniform(0.9, 1.1),
        "frac_reward_zero_std": rng.uniform(0.1, 0.4),
        "clip_ratio/low_mean": 0.0,
        "clip_ratio/region_mean": 0.0,
        "completions/clipped_ratio": 0.0,
        "completions/mean_length": 300 + rng.gauss(0, 20),
    }


@pytest.mark.parametrize("values", [verl, trl])
def test_a_healthy_run_of_a_framework_has_no_findings(values: Callable[[int, random.Random], dict[str, float]]) -> None:
    """Truncation of 0 and one update per batch are no lack of updates, and a faster step is not slower."""
    assert found_in(values) == []


def test_a_clip_fraction_of_zero_is_named_where_a_batch_is_used_again() -> None:
    """With several epochs per batch a clip fraction that is 0 from the start means that updates are too small."""
    diagnosis = Diagnosis(config={"ppo_epochs": 4})
    for step in range(100):
        diagnosis.feed(0, Metric(1_000_000_000 * (step + 1), step, None, None, {"actor/pg_clipfrac": 0.0}))
    assert [each.kind for each in diagnosis.findings()] == ["clip_zero"]


def test_a_measured_length_is_no_stage() -> None:
    """A length that is another at every step explains nothing: a spike beside it is reported."""

    def values(step: int, rng: random.Random) -> dict[str, float]:
        return {
            "train/loss": (8.0 if step == 300 else 2.0) * rng.uniform(0.98, 1.02),
            "sequence_length": rng.randrange(200, 400),
        }

    assert [(each.kind, each.step) for each in found_in(values)] == [("spike", 300)]


WORDS = {
    "verl": {
        "reward": "critic/score/mean",
        "entropy": "actor/entropy",
        "kl": "actor/ppo_kl",
        "clip": "actor/pg_clipfrac",
        "ev": "critic/vf_explained_var",
        "length": "response_length/mean",
    },
    "trl": {
        "reward": "objective/rlhf_reward",
        "entropy": "policy/entropy_avg",
        "kl": "policy/approxkl_avg",
        "clip": "policy/clipfrac_avg",
    },
    "prime-rl": {"reward": "train/agg/effective/agent/reward/mean", "entropy": "entropy/all/mean"},
    "tinker-cookbook": {
        "reward": "env/all/reward/total",
        "entropy": "optim/entropy",
        "kl": "kl_pre_post_v1",
        "length": "env/all/ac_tokens_per_turn",
    },
    "stable-baselines3": {
        "reward": "rollout/ep_rew_mean",
        "kl": "train/approx_kl",
        "clip": "train/clip_fraction",
        "ev": "train/explained_variance",
    },
    "torchtitan": {
        "reward": "rollout_reward/_mean",
        "entropy": "trainer/entropy/mean",
        "clip": "loss/ratio_clipped_frac",
        "length": "rollout/response_length/mean",
    },
}
"""What frameworks call the metrics of the zoo's stories about policies."""
NEEDS = {
    "kl_blowup": {"kl"},
    "entropy_collapse": {"entropy"},
    "clip_saturated": {"clip"},
    "clip_zero": {"clip"},
    "value_function_lost": {"ev"},
    "dead_environment": {"reward"},
    "reward_hacking": {"reward", "length", "kl"},
}
TOLD = [(where, story) for where, words in WORDS.items() for story, needed in NEEDS.items() if needed <= set(words)]


@pytest.mark.parametrize(("framework", "name"), TOLD)
def test_a_story_is_understood_in_the_words_of_a_framework(framework: str, name: str) -> None:
    """A fault of a policy is named under the names of every framework that logs what it needs."""
    story, truth = evaluate.FAULTS[name](evaluate.seeded(name, 5))
    words = {story.names[each]: word for each, word in WORDS[framework].items() if each in story.names}
    story.curves = {words.get(key, key): curve for key, curve in story.curves.items()}
    truth.about = None
    found = evaluate.diagnose(story)
    assert any(evaluate.names(each, truth) for each in found), found


def test_what_a_reward_model_says_has_no_level() -> None:
    """Its mean over both answers goes where it likes; the reward of a policy does not."""
    made = Diagnosis()
    for step in range(200):
        values = {"loss": 0.5, "accuracy": 0.8, "margin": 1.2, "mean_reward": 1.0 if step < 100 else -3.0}
        values |= {"max_reward": values["mean_reward"] + 2, "min_reward": values["mean_reward"] - 2}
        noise = random.Random(step).uniform(0.9, 1.1)
        made.feed(0, Metric(10**12 + step * 10**9, step, None, None, {k: v * noise for k, v in values.items()}))
    assert "reward_collapse" not in [each.kind for each in made.findings()]
    assert role_of("mean_reward").name == "reward"
