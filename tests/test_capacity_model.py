"""The table for 10, 1,000 and 100,000 GPUs in docs/scale.md is what its measured figures give."""

from benchmarks.capacity_model import DOCUMENT, read_model, rows


def test_the_table_follows_from_the_figures() -> None:
    """Each row, the price of a GPU, and the largest run."""
    text = DOCUMENT.read_text()
    for row in rows(text):
        assert row in text
    model = read_model(text)
    assert f"{model.money:.2f} a day for each GPU" in text
    assert f"about {model.most_on_a_shard}00 GPUs" in text
