"""Numbers as text: one table of texts that Python and the page's JavaScript both have to write."""

import json
import math
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stepscope.model
from stepscope.model import formatting

TABLE: dict[str, list[list[Any]]] = json.loads(Path(__file__).with_name("formatting.json").read_text())
WEB = Path(stepscope.model.__file__).parents[1] / "hub" / "web"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed (apt-get install nodejs)")
IN_JAVASCRIPT = {"brief": "count", "size": "bytes", "duration": "lasting", "step_ticks": "stepTicks"}
"""Functions of parts/format.js that have another name than in Python."""
SCRIPT = """
import * as format from "./web/parts/format.js";
import { tickX, tickY } from "./web/charts/scales.js";
import { readFileSync } from "node:fs";
const parse = (text) => JSON.parse(text);
const asked = parse(readFileSync(0, "utf8"));
const call = (name, brief, given) => name === "tickY" ? tickY(() => 1, () => given[1] || {})(null, given[0])
  : name === "tickX" ? tickX(given[1])(null, given[0])
  : brief ? format.count(given[0], { brief: true, digits: given[1] ?? 3 }) : format[name](...given);
console.log(JSON.stringify(asked.map(([name, brief, given]) => call(name, brief, given))));
"""


@pytest.fixture(scope="module")
def javascript(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Call functions of the page's modules in Node: a list of (name, arguments) gives a list of results."""
    place = tmp_path_factory.mktemp("node")
    for folder in ("parts", "charts"):
        shutil.copytree(WEB / folder, place / "web" / folder)
    (place / "package.json").write_text('{"type": "module"}')
    (place / "ask.js").write_text(SCRIPT)

    def call(asked: list[tuple[str, list[Any]]]) -> list[Any]:
        given = [[IN_JAVASCRIPT.get(name, name), name == "brief", arguments] for name, arguments in asked]
        done = subprocess.run(
            [str(NODE), "ask.js"], input=json.dumps(given), capture_output=True, text=True, cwd=place, check=False
        )
        assert done.returncode == 0, done.stderr
        answers: list[Any] = json.loads(done.stdout)
        return answers

    return call


@pytest.mark.parametrize("name", TABLE)
def test_python_writes_the_table(name: str) -> None:
    """Each value of the table has one text, from 1e-300 to 1e300."""
    made = [getattr(formatting, name)(*arguments) for arguments, _ in TABLE[name]]
    assert made == [text for _, text in TABLE[name]]


@needs_node
def test_the_page_writes_the_same_table(javascript: Any) -> None:
    """The page writes the same texts."""
    rows = [(name, arguments, text) for name, table in TABLE.items() for arguments, text in table]
    made = javascript([(name, arguments) for name, arguments, _ in rows])
    assert list(zip(rows, made, strict=True)) == [(row, row[2]) for row in rows]


@needs_node
def test_axes_write_numbers_as_everything_else_does(javascript: Any) -> None:
    """Ticks keep the zeros of their exponents, say bytes as such, and never have one text for two places."""
    tera, memory = [0, 1e10, 2e10], [0, 2e9, 4e9]
    made = javascript(
        [
            ("tickY", [tera]), ("tickY", [memory, {"key": "memory/used_bytes"}]),
            ("tickY", [[0, 5e6], {"unit": "By/s"}]),
            ("tickX", [[0, 250, 500.5], "step"]), ("tickX", [[0, 0.5, 1], "relative"]),
            ("tickX", [[100.0, 100.2, 100.4], "relative"]), ("tickX", [[3600, 7200], "relative"]),
            ("tickX", [[1e10, 2e10], "metric"]),
        ]
    )  # fmt: skip
    assert made == [
        ["0", "1e10", "2e10"], ["0 B", "2 GB", "4 GB"], ["0 B/s", "5 MB/s"], ["0", "250", ""],
        ["0 s", "500 ms", "1 s"], ["100 s", "100.2 s", "100.4 s"], ["1h 00m", "2h 00m"], ["1e10", "2e10"],
    ]  # fmt: skip


@needs_node
def test_any_double_has_the_same_text_in_both(javascript: Any) -> None:
    """Rounding, exponents and units agree for doubles of every magnitude, not just for those of the table."""
    seeds = [struct.pack(">Q", (at * 0x9E3779B97F4A7C15) % 2**64) for at in range(1, 3000)]
    doubles = [value for seed in seeds if math.isfinite(value := struct.unpack(">d", seed)[0])]
    doubles += [
        sign * round(at / 7, at % 5) * 10.0**power
        for at in range(1, 40)
        for power in range(-12, 13, 3)
        for sign in (1, -1)
    ]
    asked = [(name, [value]) for name in ("number", "size", "duration", "brief") for value in doubles]
    asked += [("number", [value, digits]) for digits in (2, 3, 7) for value in doubles]
    expected = [getattr(formatting, name)(*arguments) for name, arguments in asked]
    differing = [row for row in zip(asked, expected, javascript(asked), strict=True) if row[1] != row[2]]
    assert differing == []


@given(st.floats(min_value=-1e308, max_value=1e308))
def test_a_number_is_read_back_as_what_it_was_nearly(value: float) -> None:
    """No text is of another magnitude than its number: four digits are right."""
    read = float(formatting.number(value).replace(",", ""))
    assert math.isclose(read, value, rel_tol=6e-4) or abs(value) < 1e-320


@pytest.mark.parametrize(("value", "text"), [(0, "0 records"), (1, "1 record"), (1234, "1,234 records")])
def test_amounts_have_their_noun(value: int, text: str) -> None:
    """One is one."""
    assert formatting.amount(value, "record") == text
