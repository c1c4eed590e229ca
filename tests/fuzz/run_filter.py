"""The expressions that pick runs, read and held against runs."""

from collections.abc import Iterator

from stepscope.hub.questions.runs import run_fields
from stepscope.hub.questions.runs.run_filter import ExpressionError, parse
from stepscope.hub.runs.run_states import RunStatus
from stepscope.hub.store.read.run_row import Details, Ending, Latest, Rest, RunRow

_COUNTS = dict.fromkeys(("points", "spans", "logs", "events", "alerts", "rejected"), 3)
_CONFIG = {
    "config": {"lr": 3e-4, "optim": {"name": "adam"}, "layers": [1, 2], "none": None, "yes": True},
    "team": "red",
}
_VALUES = {"trainer/loss": Latest(float("nan"), 3, 4), "loss": Latest(0.5, 3, 4)}
ROWS = (
    RunRow(1, "a", "gpt", "base", 10**18, 10**18, 8, 8, 2, 12,
           Rest(Details(("h", "i"), _COUNTS, _CONFIG, (Ending(0, 2, 10**18, "finished"),))), 10**18, 10**18, _VALUES),
    RunRow(2, "б", "", "", 0, 0, 1, 1, 1, None, Rest(Details((), _COUNTS))),
)  # fmt: skip


def check(data: bytes) -> None:
    """Read an expression and pick runs with it; a mistake is named with where it is."""
    text = data.decode(errors="replace")
    position = 0
    try:
        wanted = parse(text)
        run_fields.check(wanted)
        run_fields.select(ROWS, wanted, lambda row: RunStatus("running"), {"loss": ("trainer/loss", "loss")})
    except ExpressionError as error:
        position = error.position
        str(error).encode()
    assert 0 <= position <= len(text)


def seeds() -> Iterator[bytes]:
    """What the documentation shows, and each operator."""
    texts = (
        'status = running and metrics.loss < 0.5 and config.lr = 3e-4 and (name ~ "base" or tag.team = "red")',
        'status in (failed, crashed) and started > "2026-11-01" and not project = tiny',
        "metrics.trainer/loss = nan or alerts > 0",
        "metrics.\"my key\" >= -1.5e3 or config.optim.name != 'adam' or step not in (1, 2_000, inf)",
        "not (not hosts = h) and config.layers = 2 and config.yes == true and duration <= 3 and created < 9",
    )
    yield b""
    yield from (text.encode() for text in texts)
