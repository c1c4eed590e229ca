"""A run shows itself in a notebook: escaped, small, and never in the way."""

import math
from html.parser import HTMLParser
from pathlib import Path

import stepscope


def test_a_run_is_a_card(tmp_path: Path) -> None:
    """Name, step, leading metrics with their course, alerts; what it is called is text."""
    run = stepscope.init(project="<b>p", name="n&1", home=tmp_path, probes=False)
    for step in range(100):
        run.log({"loss": math.nan if step == 50 else 1 / (step + 1), "<i>": 1.0}, step=step)
    run.alert("spike")
    card = run._repr_html_()
    assert card is not None
    parser = HTMLParser()
    text: list[str] = []
    parser.handle_data = text.append  # type: ignore[method-assign]
    parser.feed(card)
    shown = "".join(text)
    for word in ("<b>p/n&1", "running", "step 99", "1 alert", "loss", "<i>", "1 not finite", run.id):
        assert word in shown
    assert "<polyline" in card
    assert not any(word in card for word in ("<b>p", "<i>", "http", "<script", "src="))
    assert len(card) < 10_000
    run.finish()
    assert "finished" in (run._repr_html_() or "")


def test_a_card_that_cannot_be_made_is_none(tmp_path: Path) -> None:
    """Whatever is wrong with the disk, the notebook shows the plain text instead."""
    run = stepscope.init(home=tmp_path / "home", probes=False)
    run.log({"loss": 1.0}, step=0)
    run.finish()
    run.settings = None  # type: ignore[assignment]
    assert run._repr_html_() is None
