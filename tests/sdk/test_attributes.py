"""Attributes: no secret stays in them, what is cut says so, and what is clean stays as it is."""

import logging
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.hub.limits import Limits
from stepscope.journal import layout, segments
from stepscope.model.names import EVENT_STARTED
from stepscope.model.records import Event, Log
from stepscope.model.redaction import MASK, redact
from stepscope.sdk.attributes import LONGEST, MOST, clean
from stepscope.testing import recorded


@pytest.fixture
def torch() -> Any:
    """The real torch."""
    return pytest.importorskip("torch", reason="torch is not installed")


def test_headers_in_pairs() -> None:
    """The value of a secret header is masked in lists of pairs, of texts or bytes, and its name stays."""
    given = {
        "httpx": [("Authorization", "Bearer X"), ("Accept", "a")],
        "asgi": ((b"authorization", b"X"), [b"host", b"h"]),
        "items": {"api_key": "X"}.items(),
        "words": ["pass", "fail"],
        "samples": [("where is the secret", "here")],
    }
    assert redact(clean(given)) == {
        "httpx": [["Authorization", MASK], ["Accept", "a"]],
        "asgi": [[b"authorization", MASK], [b"host", b"h"]],
        "items": [["api_key", MASK]],
        "words": ["pass", "fail"],
        "samples": [["where is the secret", "here"]],
    }


def test_keys_of_bytes() -> None:
    """They become the texts they stand for, so that the secrets among them are known; no two become one."""
    given = {"headers": {b"x-auth-token": b"X", b"host": 1, b"\xff": 2, b"\xfe": 3}}
    assert redact(clean(given)) == {"headers": {"x-auth-token": MASK, "host": 1, "\\xff": 2, "\\xfe": 3}}


def test_attributes_of_the_resource(tmp_path: Path) -> None:
    """Secrets in resource attributes are masked."""
    said = {"api_key": "sk-1", "team": "blue", "service.name": "trainer"}
    run = stepscope.init(project="p", home=tmp_path, probes=False, otel=False, resource_attributes=said)
    run.finish()
    (name,) = layout.list_writers(tmp_path, run.id)
    (batch, *_) = segments.read_writer(layout.writer_folder(tmp_path, run.id, name))
    assert batch.writer is not None
    found = batch.writer.resource
    assert (found["api_key"], found["team"], found["service.name"]) == (MASK, "blue", "trainer")


def test_names_tags_and_keys_are_masked(tmp_path: Path) -> None:
    """A password in the name of a project, run, tag, logger or attribute reaches no file."""
    address = "postgres://bob:Zq7kV9xTr4@db/{}"
    run = stepscope.init(
        project=address.format(1), name=address.format(2), tags=[address.format(3)], home=tmp_path, otel=False
    )
    run.flush()  # before it is renamed
    logging.getLogger(address.format(4)).warning("a line")
    run.tag(address.format(5))
    run.rename(address.format(6))
    run.event("counted", {address.format(7): 1, "by": {address.format(8): 2}})
    with run.span("ask", **{address.format(9): 1}):
        pass
    run.finish()
    assert run.project == "postgres://[redacted]@db/1"
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert [number for number in range(1, 10) if f"[redacted]@db/{number}".encode() not in written] == []
    assert b"Zq7kV9xTr4" not in written


def test_what_is_cut_says_so() -> None:
    """Lists, dicts and texts end with what is left out, and are within their bounds with it."""
    found = clean({"list": list(range(1000)), "dict": dict.fromkeys(map(str, range(300))), "text": "x" * 100_000})
    assert (found["list"][-2:], len(found["list"])) == ([254, "… (745 more)"], MOST)
    assert (found["dict"]["stepscope.cut"], len(found["dict"])) == (46, MOST)
    assert found["dict"]["stepscope.cut_keys"] == "0 … 45"
    assert (found["text"][-22:], len(found["text"])) == ("x… (100000 characters)", LONGEST)
    assert (Limits().attributes, Limits().text) == (MOST, LONGEST)  # so a hub does not cut away the words about it
    assert clean({"list": [0] * MOST, "dict": dict.fromkeys(map(str, range(MOST)))})["list"] == [0] * MOST


def test_texts_of_objects_are_cut_the_same() -> None:
    """What an object says of itself, and a text of a kind of its own."""

    class Text(str):
        """A text of one's own kind."""

    class Talker:
        """An object with much to say."""

        def __str__(self) -> str:
            return "x" * 100_000

    found = clean({"text": Text("x" * 100_000), "talker": Talker()})
    assert [value[-21:] for value in found.values()] == ["… (100000 characters)"] * 2


def test_clean_is_clean() -> None:
    """Cleaning again changes nothing: the numbers in the signs are those of what was given."""
    found = clean({
        **{str(number): number for number in range(297)},
        "a": list(range(1000)),
        "b": {"text": "x" * 100_000, "headers": [(b"cookie", b"X")], b"token": 1},
        "c": {str(number): number for number in range(300)},
    })  # fmt: skip
    assert clean(found) == found
    assert found["stepscope.cut"] == found["c"]["stepscope.cut"] == 46


def test_a_config_is_cut_once() -> None:
    """What the journal says of a config that is too large is what was too large of it."""
    with recorded(config={"many": dict.fromkeys(map(str, range(300))), "text": "x" * 100_000}) as recording:
        pass
    (started,) = [one for one in recording.records if isinstance(one, Event) and one.name == EVENT_STARTED]
    config = started.attrs["config"]
    assert (config["many"]["stepscope.cut"], config["text"][-21:]) == (46, "… (100000 characters)")


def test_long_lines_say_so() -> None:
    """A log line that is cut ends as a cut attribute does."""
    logger = logging.getLogger("long")
    logger.propagate = False
    with recorded(capture_logs=True) as recording:
        logger.warning("x" * 100_000)
    (line,) = [record for record in recording.records if isinstance(record, Log)]
    assert (line.body[-22:], len(line.body)) == ("x… (100000 characters)", LONGEST)


def test_numbers_in_torch_scalars(torch: Any) -> None:
    """A scalar on the CPU is its number, whether or not it is trained; others are named, not read."""
    given = {
        "loss": torch.tensor(0.5, requires_grad=True),
        "count": torch.tensor(3),
        "done": torch.tensor(True),
        "weight": torch.nn.Parameter(torch.tensor(2.0)),
        "row": [torch.tensor(1.0), torch.tensor([1.0, 2.0])],
        "meta": torch.tensor(1.0, device="meta"),
    }
    wanted = {
        "loss": 0.5,
        "count": 3,
        "done": True,
        "weight": 2.0,
        "row": [1.0, "<Tensor (2,) on cpu>"],
        "meta": "<Tensor () on meta>",
    }
    assert clean(given) == wanted


def test_scalars_without_a_number_yet(torch: Any) -> None:
    """Inside a transform of torch's a scalar is named, and nothing raises."""
    seen: list[Any] = []

    def look(value: Any) -> Any:
        seen.append(clean({"value": value})["value"])
        return value

    torch.vmap(look)(torch.ones(2))
    assert seen == ["<Tensor () on cpu>"]
