"""Names and tags: Datadog's characters and lengths, the namespace once, no tags that cost a series each."""

import pytest
from datadog.util.format import normalize_tags

from stepscope.dialects.datadog.wire.items import metric_name, tag, tags_of


@pytest.mark.parametrize(
    ("key", "namespace", "name"),
    [
        ("trainer/loss", "", "trainer.loss"),
        ("trainer/loss", "signal", "signal.trainer.loss"),
        ("signal.training.loss", "signal", "signal.training.loss"),
        ("signal", "signal", "signal"),
        ("signals/x", "signal", "signal.signals.x"),
        ("lr (group 0)", "", "lr__group_0_"),
        ("//a//b/", "", "a.b"),
        ("1st", "", "x1st"),
        ("", "", "x"),
        ("a:b|c#d,e\nf@g", "", "a_b_c_d_e_f_g"),
    ],
)
def test_names(key: str, namespace: str, name: str) -> None:
    """Slashes are dots, what parts a line is an underscore, a namespace that is there is not put again."""
    assert metric_name(key, namespace) == name


def test_foreign_names_stay_apart() -> None:
    """Two names in another script are two metrics, in the letters that Datadog has."""
    first, second = metric_name("损失"), metric_name("奖励")
    assert first != second
    assert (first + second).isascii()


def test_overlong_names_are_cut() -> None:
    """Names are truncated to Datadog's limit."""
    assert len(metric_name("a" * 500, "ns")) == 200


@pytest.mark.parametrize("text", ["team:ml", "größe:ärger", "host:a b", "x:1,2|3", "a:b\nc"])
def test_tags_are_as_the_client_would_have_them(text: str) -> None:
    """The official client's own rule: letters of any language stay, separators do not."""
    assert [tag(text)] == normalize_tags([text])


def test_overlong_tags_are_cut() -> None:
    """Tags are truncated to Datadog's limit, which the client leaves to the Agent."""
    assert tag("k", "ü" * 500) == "k:" + "ü" * 198


def test_tags_of_attributes() -> None:
    """Scalars, lists and bare tags; bools in lower case."""
    found = list(tags_of({"env": "x", "ok": True, "n": 3, "l": ["a", "b"], "bare": "", "none": None}))
    assert found == ["env:x", "ok:true", "n:3", "l:a", "l:b", "bare", "none"]


def test_costly_tags() -> None:
    """A step is never a tag, nor is what is meant for us; the run that a caller wrote is one."""
    attrs = {"step": 3, "global_step": 3, "train.step": 3, "run_id": "r", "statsd.rate": 0.5, "datadog.priority": "low"}
    assert list(tags_of(attrs)) == ["run_id:r"]
