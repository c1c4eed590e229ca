"""Names: aliases lead to one word, severities are OpenTelemetry's."""

import re

import pytest

from stepscope.hub.serving.page import WEB
from stepscope.model import names


def test_every_category_word_means_a_category() -> None:
    """An accepted word leads to a prefix that is itself accepted, and is written in lower case."""
    for word, prefix in names.CATEGORIES.items():
        assert word == word.lower()
        assert names.CATEGORIES[prefix] == prefix


@pytest.mark.parametrize(
    ("number", "word"),
    [(1, "TRACE"), (4, "TRACE"), (5, "DEBUG"), (9, "INFO"), (13, "WARN"), (17, "ERROR"), (21, "FATAL"), (24, "FATAL")],
)
def test_a_severity_number_has_a_word(number: int, word: str) -> None:
    """Each of the 24 numbers falls into one of six words."""
    assert names.severity_word(number) == word


@pytest.mark.parametrize(("number", "word"), [(-5, "UNSPECIFIED"), (0, "UNSPECIFIED"), (25, "FATAL"), (10**9, "FATAL")])
def test_a_severity_beyond_the_scale_has_a_word_too(number: int, word: str) -> None:
    """Foreign clients send any number; nothing raises, and none that was given is not called TRACE."""
    assert names.severity_word(number) == word


def test_every_severity_word_has_the_number_it_is_named_for() -> None:
    """From word to number and back; WARNING and CRITICAL are other words for WARN and FATAL."""
    same = {"WARNING": "WARN", "CRITICAL": "FATAL"}
    for word, number in names.SEVERITIES.items():
        assert names.severity_word(number) == same.get(word, word)


def test_the_step_is_looked_for_first_under_our_own_name() -> None:
    """Among the aliases of the step attribute ours is the strongest, and none is there twice."""
    assert names.STEP_ALIASES[0] == names.ATTR_STEP
    assert len(set(names.STEP_ALIASES)) == len(names.STEP_ALIASES)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("train/loss", "trainer/loss"),
        ("Trainer/loss", "trainer/loss"),
        ("eval/acc/top1", "evaluator/acc/top1"),
        ("act/x", "actor/x"),
        ("loss", "loss"),
        ("train", "train"),
        ("train/", "train/"),
        ("training/loss", "training/loss"),
    ],
)
def test_a_key_has_one_name(key: str, name: str) -> None:
    """Words for one category are one category; a key without one stays as it is."""
    assert names.canonical_key(key) == name


def test_spellings() -> None:
    """The key itself comes first, then its category in other words, then none; without one, any category."""
    assert names.spellings("train/loss") == ["train/loss", "trainer/loss", "loss"]
    assert names.spellings("loss")[:3] == ["loss", "trainer/loss", "train/loss"]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("train/loss", "train/loss"),
        ("trainer/loss", "train/loss"),
        ("eval/loss", "Eval/loss"),
        ("trainer/lr", "lr"),
        ("kl", "trainer/kl"),
        ("actor/lr", None),
        ("trainer/loss/", None),
    ],
)
def test_a_name_means_a_recorded_key(name: str, key: str | None) -> None:
    """A name means itself, else the key in another spelling of its category, else the trainer's."""
    assert names.recorded_key(name, ["train/loss", "Eval/loss", "lr", "trainer/kl"]) == key


def test_the_page_knows_the_same_categories() -> None:
    """The page's words for categories are those of the model."""
    text = (WEB / "parts" / "metric_names.js").read_text().partition("export const CATEGORIES = {")[2].partition("}")[0]
    assert dict(re.findall(r'(\w+): "(\w+)"', text)) == names.CATEGORIES
