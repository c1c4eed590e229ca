"""Answers in tables of samples: each fault is named once, and healthy tables have none."""

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from stepscope.diagnosis.detectors.sample_texts import is_foreign, is_loop
from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.names import SCOPE_SAMPLES
from stepscope.model.records import Log

_PROSE = (
    "the model learns a little in each step and its answers become longer while the reward rises slowly because we "
    "sum over tokens of every group then divide by two hence x equals seven so that proof holds for all n greater"
)
WORDS = _PROSE.split()
CHINESE = (
    "模型在每一步学习一点点然后回答变得更长奖励慢慢上升所以我们对所有词求和得到最后的结果并且证明它对所有的数都成立"
)
STEPS, GROUP = 60, 8
Answers = Callable[[random.Random, int, int], Any]


def prose(chance: random.Random, words: int = 120) -> str:
    """A text that does not repeat itself."""
    return " ".join(chance.choice(WORDS) for _ in range(words)) + "."


def told(answers: Answers, *, steps: int = STEPS, **columns: Any) -> list[Finding]:
    """Diagnose a run that logs a group of answers to one prompt in each step."""
    chance, diagnosis, time = random.Random(3), Diagnosis(), 0
    for step in range(steps):
        for at in range(GROUP):
            time += 1_000_000
            row = {"prompt": f"question {step}", "completion": answers(chance, step, at), **columns}
            if isinstance(row["completion"], dict):
                row.update(row.pop("completion"))
            diagnosis.feed(0, Log(time, step, None, None, None, 9, "rollouts", row, SCOPE_SAMPLES))
    return diagnosis.findings()


def kinds(found: Iterable[Finding]) -> list[str]:
    """The kinds of findings."""
    return [each.kind for each in found]


def loops(chance: random.Random, step: int, at: int) -> str:
    """Prose, and from the middle on prose that ends in a loop in half of the answers."""
    return prose(chance) + (" wait, let me check" * 60 if step >= STEPS // 2 and at % 2 else "")


def empty(chance: random.Random, step: int, at: int) -> str:
    """Prose, then nothing."""
    return " \n" if step >= STEPS // 2 and at % 2 else prose(chance)


def equal(chance: random.Random, step: int, at: int) -> str:
    """Different answers, then the same one for the whole group."""
    return prose(chance) if step < STEPS // 2 else f"the answer to {step} is surely the number seven, which is right"


def foreign(chance: random.Random, step: int, at: int) -> str:
    """English, then English and Chinese."""
    return prose(chance) + (CHINESE * 4 if step >= STEPS // 2 and at % 2 else "")


def cut(chance: random.Random, step: int, at: int) -> dict[str, str]:
    """Answers that end, then answers that are cut off."""
    return {"response": prose(chance), "finish_reason": "length" if step >= STEPS // 2 else "stop"}


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        (loops, "looping_samples"),
        (empty, "empty_samples"),
        (equal, "equal_samples"),
        (foreign, "script_change"),
        (cut, "truncation"),
    ],
)
def test_a_fault_is_named_once_and_after_it_began(answers: Answers, kind: str) -> None:
    """Each fault is found in the steps after it began, and nothing else is."""
    found = told(answers, reward=0.5)
    assert kinds(found) == [kind]
    assert found[0].step is not None
    assert STEPS // 2 <= found[0].step <= STEPS // 2 + 20
    assert found[0].cause
    assert found[0].advice


@pytest.mark.parametrize("answers", [loops, empty, equal, foreign, cut])
def test_before_the_fault_nothing_is_found(answers: Answers) -> None:
    """The same run without its second half is healthy."""
    assert told(answers, steps=STEPS // 2, reward=0.5) == []


def short(chance: random.Random, step: int, at: int) -> str:
    """Answers of one word, which are often equal."""
    return "42"


def noise(chance: random.Random, step: int, at: int) -> str:
    """What a model writes before it has learned anything."""
    return "".join(chance.choice("abc def\n{}$") for _ in range(400))


def translated(chance: random.Random, step: int, at: int) -> str:
    """Answers that are in another script from the start: a translation."""
    return CHINESE * 3


def table(chance: random.Random, step: int, at: int) -> str:
    """A table of numbers, which repeats its layout."""
    return "\n".join(f"| {row} | {chance.random():.3f} | {chance.randrange(100)} |" for row in range(40))


def greedy(chance: random.Random, step: int, at: int) -> str:
    """One long answer to each prompt, as an evaluation without temperature has it."""
    return f"the answer to {step} is surely the number seven, which is right and also long enough"


@pytest.mark.parametrize("answers", [short, noise, translated, table, greedy])
def test_healthy_tables_have_no_finding(answers: Answers) -> None:
    """Short, noisy, translated, tabular and greedy answers are no faults."""
    assert told(answers) == []


def test_tables_without_an_answer_are_left_alone() -> None:
    """Numbers alone, or texts under other names, are not judged."""
    diagnosis = Diagnosis()
    for step in range(300):
        row = {"name": "", "value": None, "reward": 0.0}
        diagnosis.feed(0, Log(step, step, None, None, None, 9, "evaluation", row, SCOPE_SAMPLES))
    assert diagnosis.findings() == []


def test_samples_are_not_log_lines() -> None:
    """What a prompt says is no error of the program: words of torch, CUDA or retries in it are not diagnosed."""
    diagnosis = Diagnosis()
    for step in range(200):
        row = {"prompt": "dynamo: recompiling function, connection refused, retrying", "completion": f"{step}"}
        log = Log(step * 10**8, step, None, None, None, 17, "dynamo retry timeout", row, SCOPE_SAMPLES)
        diagnosis.feed(0, log)
    assert diagnosis.findings() == []


def test_loops_and_prose() -> None:
    """Loops of words, letters and lines are loops; prose, code and short texts are none."""
    chance = random.Random(1)
    assert is_loop(prose(chance) + "and so on " * 200)
    assert is_loop("0" * 1000)
    assert is_loop("重复" * 400)
    assert not is_loop(prose(chance, 500))
    assert not is_loop("again and again " * 10)
    assert not is_loop("\n".join(f"x{at} = f(x{at - 1}, {at * 7 % 13})" for at in range(100)))


def test_scripts() -> None:
    """A script of the prompt is not foreign, and neither are formulas, accents, names or single words."""
    english = prose(random.Random(2))
    assert is_foreign(english, english[:200] + CHINESE * 4)
    assert not is_foreign(CHINESE, english)
    assert not is_foreign(CHINESE, CHINESE * 3)
    assert not is_foreign("日本語の質問です、漢字とかな", CHINESE)
    assert not is_foreign(english, english + " 北京")
    assert not is_foreign(english, "∑αβγ × ∫ ≤ ω naïve façade señor élève über größer " * 10)
