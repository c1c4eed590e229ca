"""A repository that Aim itself wrote becomes runs with the same values; see data/aim_repository.py."""

import math
import tarfile
from pathlib import Path

import pytest

from stepscope.cli.main import main
from stepscope.dialects.aim import importer as aim_repository
from stepscope.dialects.aim.importer import AimRepository
from stepscope.dialects.neptune import importer as neptune_export
from stepscope.imports import source
from stepscope.model.records import Event, Log
from stepscope.testing import read_run
from tests.imports.importing import bring, check_finds_differences, import_in_pieces, is_same, series

DATA = Path(__file__).parent / "data" / "aim.tar.xz"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The folder that holds the repository."""
    with tarfile.open(DATA) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2 has none
        archive.extractall(tmp_path / "project")
    return tmp_path / "project"


def test_a_repository_of_aim(repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers of each context, texts, parameters, name, experiment, tags and notes arrive; files are not touched."""
    pytest.importorskip("aimrocks", reason="reads RocksDB")
    before = {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()}
    home = tmp_path / "home"
    done = bring(capsys, home, repository)
    runs = {each["name"]: each for each in done["runs"]}
    first, other = runs.pop("first"), runs.popitem()[1]
    assert (first["values"], other["values"], done["left_out"]) == (201, 2, {"values of type aim.distribution": 1})
    records = list(read_run(home, first["run"]))
    losses = series(records, "train/loss")
    assert math.isnan(losses.pop(7))
    assert losses == {step: step / 4 for step in range(50) if step != 7}
    assert series(records, "val/loss") == {step: step / 2 for step in range(50)}
    assert series(records, "acc") == {step: step for step in range(50)}
    assert series(records, "odd") == {3: math.inf}
    assert [(each.step, each.body) for each in records if isinstance(each, Log)] == [(1, "hello")]
    start = next(each for each in records if isinstance(each, Event)).attrs
    expected = {"lr": 0.5, "layers": [1, 2], "opt": {"name": "adam", "amsgrad": True}, "none": None}
    assert start["config"] == {"hparams": expected}
    assert (start["tags"], start["notes"]) == (["blue"], "some notes")
    assert series(read_run(home, other["run"]), "x") == {5: 2.0, 10: 3}
    assert [each["values"] for each in bring(capsys, home, repository / ".aim")["runs"]] == [0, 0]
    check_finds_differences(home, repository, first["run"])
    assert {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()} == before


def test_an_import_of_aim_goes_on_where_it_was(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended after each chunk and begun again, nothing is missing and nothing comes twice."""
    pytest.importorskip("aimrocks", reason="reads RocksDB")
    monkeypatch.setattr(source, "CHUNK_RECORDS", 15)
    assert import_in_pieces(tmp_path / "home", AimRepository(), repository) > 5
    assert is_same(tmp_path / "home", repository)


def test_without_aimrocks_the_error_says_what_to_install(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A repository is recognised even where it cannot be read."""
    for module in (aim_repository, neptune_export):
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "a_part_0.parquet").write_bytes(b"PAR1")
    for path, words in ((repository, "pip install aimrocks"), (tmp_path / "export", "pip install pyarrow")):
        assert main(["import", str(path), "--home", str(tmp_path / "home")]) == 2
        assert words in capsys.readouterr().err


def test_a_damaged_repository_is_said(repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A database that cannot be opened is named among what was left out; the other run arrives."""
    pytest.importorskip("aimrocks", reason="reads RocksDB")
    for file in (repository / ".aim" / "seqs" / "chunks").glob("56*/*.sst"):
        file.write_bytes(file.read_bytes()[:100])
    done = bring(capsys, tmp_path / "home", repository)
    assert [each["values"] for each in done["runs"]] == [0, 2]
    assert any(reason.startswith("56ac49550a28471b9af67bdb: ") for reason in done["left_out"])
