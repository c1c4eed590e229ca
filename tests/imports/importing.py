"""What the tests of imports share: import a path, read series, and plant differences that a check must find."""

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.cli.main import main
from stepscope.imports.importer import import_run
from stepscope.imports.source import Source
from stepscope.journal import layout
from stepscope.journal.segments import Journal, find_writer, read_writer
from stepscope.model.records import Metric, Record

_pack = msgspec.msgpack.Encoder().encode


def bring(capsys: pytest.CaptureFixture[str], home: Path, path: Path, *options: str) -> dict[str, Any]:
    """Import a path and return what the command says."""
    capsys.readouterr()
    assert main(["import", str(path), "--home", str(home), "--json", *options]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def series(records: Iterable[Record], key: str) -> dict[int | None, Any]:
    """The values of a key by step."""
    return {each.step: each.values[key] for each in records if isinstance(each, Metric) and key in each.values}


def is_same(home: Path, path: Path) -> bool:
    """Whether `--check` finds no difference."""
    return main(["import", str(path), "--home", str(home), "--check"]) == 0


def check_finds_differences(home: Path, path: Path, run: str) -> None:
    """A changed value, a missing one and one too many in the journal are found by `--check`."""
    assert is_same(home, path)
    for change in (_other_value, _nothing, _twice):
        copy = home.with_name(f"{home.name}-{run}-{change.__name__}")
        shutil.copytree(home, copy)
        assert _rewrite(copy, run, change)
        assert not is_same(copy, path), change.__name__


def _other_value(metric: Metric) -> list[Metric]:
    key = next(iter(metric.values))
    return [msgspec.structs.replace(metric, values={**metric.values, key: -12345.5})]


def _nothing(metric: Metric) -> list[Metric]:
    return []


def _twice(metric: Metric) -> list[Metric]:
    return [metric, metric]


def _rewrite(home: Path, run: str, change: Callable[[Metric], list[Metric]]) -> bool:
    """Write the first journal of a run that has metrics anew, with its first metric changed."""
    for name in layout.list_writers(home, run):
        folder = layout.writer_folder(home, run, name)
        writer, batches = find_writer(folder), [list(batch.records) for batch in read_writer(folder)]
        place = next(
            ((b, r) for b, batch in enumerate(batches) for r, each in enumerate(batch) if isinstance(each, Metric)),
            None,
        )
        if place is None:
            continue
        batch, at = place
        metric = batches[batch][at]
        assert isinstance(metric, Metric)
        batches[batch][at : at + 1] = change(metric)
        shutil.rmtree(folder)
        journal = Journal(folder, writer)
        for records in batches:
            journal.append([_pack(each) for each in records])
        journal.close()
        return True
    return False


def import_in_pieces(home: Path, source: Source, path: Path) -> int:
    """Import with an end after each chunk, as a kill between two batches would be; return how many were needed."""
    pieces = 0
    while True:
        progress = [
            import_run(home, run, source.name, lambda reason, count: None) for run in source.find(path, lambda *_: None)
        ]
        went_on = False
        for each in progress:
            step = next(each, None)
            each.close()
            went_on |= step is not None
        if not went_on:
            return pieces
        pieces += 1
