"""Samples: which columns of a row hold the prompt, the answer and why it ended, whoever named them."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from stepscope.model.names import SCOPE_SAMPLES
from stepscope.model.records import Log

MAX_COLUMNS = 64
"""Columns of one row."""
MAX_NAME = 256
"""Characters of the name of a table or column."""
PROMPTS = ("prompt", "prompts", "input", "inputs", "question", "query", "problem", "instruction", "messages")
ANSWERS = (
    *("completion", "completions", "response", "responses", "output", "outputs", "answer", "generation", "generated"),
    *("prediction", "text"),
)
ENDINGS = ("finish_reason", "stop_reason", "finished_by")
_NUMBERED = re.compile(r"(.+?)[_ ]?\d{1,6}")


def is_sample(record: Any) -> bool:
    """Return whether a record is a row of a table of samples."""
    return isinstance(record, Log) and record.scope == SCOPE_SAMPLES


def find_column(names: Iterable[str], known: Iterable[str]) -> str | None:
    """Return the column that has one of some known names, in any case; the first of them that there is."""
    lower = {name.lower(): name for name in names}
    return next((lower[each] for each in known if each in lower), None)


def text_in(row: Mapping[str, Any], known: Iterable[str]) -> str | None:
    """Return the text of a row under one of some known names; None without such a column, or when it has no text."""
    name = find_column(row, known)
    value = None if name is None else row[name]
    return value if isinstance(value, str) else None


def prompt_number(text: str) -> int:
    """Return the number under which rows of the same prompt are found: 64 bits of its hash, 0 for an empty one."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()) if text else 0


def unnumbered(columns: list[str]) -> list[list[tuple[int, str]]]:
    """Return the groups of columns that one row repeats, as `input_1, output_1, input_2, output_2` do.

    Each group has the places of its columns with their names without the number. Empty unless two or more groups have
    the same names.
    """
    groups: dict[str, list[tuple[int, str]]] = {}
    for place, name in enumerate(columns):
        found = _NUMBERED.fullmatch(name)
        if found is not None:
            groups.setdefault(name[len(found[1]) :].lstrip("_ "), []).append((place, found[1]))
    names = [[name for _, name in group] for group in groups.values()]
    return list(groups.values()) if len(names) > 1 and all(each == names[0] for each in names) else []
