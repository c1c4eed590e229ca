"""Every kind of value that the writers of TensorBoard know: imported, or counted among what was left out."""

import struct
from pathlib import Path
from typing import Any

import pytest

from stepscope.dialects.tensorboard import importer as tensorboard
from stepscope.dialects.tensorboard.importer import EventFile, TensorBoard
from stepscope.dialects.tensorboard.wire.crc32c import crc32c, masked
from stepscope.imports.importer import files_folder
from stepscope.model.records import Event, Histogram, Log, Metric
from stepscope.testing import read_run
from stepscope.wire.frames import unpack_record
from tests.imports.importing import bring, check_finds_differences, import_in_pieces, is_same, series
from tests.late import late

tensorboardX = late("tensorboardX")
numpy = pytest.importorskip("numpy")


def write_all(writer: Any) -> None:
    """Write one value of each kind, with the calls that torch's writer and tensorboardX share."""
    picture = numpy.linspace(0, 1, 3 * 4 * 4).reshape(3, 4, 4)
    for step in range(3):
        writer.add_scalar("loss", step / 4, step)
        writer.add_image("val/picture", picture * step / 2, step)
    writer.add_images("pictures", numpy.stack([picture, picture]), 5)
    writer.add_histogram("weights", numpy.array([1.0, 2.0, 2.0, 5.0]), 3)
    writer.add_text("note", "a | b", 4)
    writer.add_pr_curve("curve", numpy.array([0, 1, 1]), numpy.array([0.1, 0.6, 0.9]), 6)
    writer.add_mesh("mesh", numpy.zeros((1, 3, 3)), global_step=7)
    writer.add_custom_scalars({"group": {"both": ["Multiline", ["loss"]]}})
    writer.flush()


@pytest.mark.parametrize("client", ["tensorboardX", "torch.utils.tensorboard"])
def test_every_kind(client: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers, histograms, texts and images arrive, images as files of the run; the rest is named in one line."""
    writers = pytest.importorskip(client, reason="a real writer of event files")
    with writers.SummaryWriter(str(tmp_path / "logs")) as writer:
        write_all(writer)
    home = tmp_path / "home"
    done = bring(capsys, home, tmp_path / "logs")
    run = done["runs"][0]["run"]
    records = list(read_run(home, run))
    assert series(records, "loss") == {0: 0.0, 1: 0.25, 2: 0.5}
    assert isinstance(series(records, "weights")[3], Histogram)
    assert [each.body for each in records if isinstance(each, Log)] == ["a | b"]
    images = [each for each in records if isinstance(each, Event) and each.name == "tensorboard.images"]
    assert [each.step for each in images if each.attrs["tag"] == "val/picture"] == [0, 1, 2]
    for image in images:
        data = (files_folder(home, run) / image.attrs["file"]).read_bytes()
        assert data.startswith(b"\x89PNG")
        assert len(data) == image.attrs["bytes"]
    assert done["left_out"]["PR curves"] == 1
    assert done["left_out"]["meshes"] >= 1
    assert done["left_out"]["layouts of custom scalars"] == 1
    assert set(done["left_out"]) == {"PR curves", "meshes", "layouts of custom scalars"}
    check_finds_differences(home, tmp_path / "logs", run)
    next(files_folder(home, run).rglob("*.png")).write_bytes(b"other")
    assert not is_same(home, tmp_path / "logs")


def test_zeros_and_odd_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Zeros are not written by protobuf, and are zeros here; a hyperparameter may be infinite or NaN; graphs count."""
    from tensorboardX.proto.event_pb2 import Event as TheirEvent

    with tensorboardX.SummaryWriter(str(tmp_path / "logs")) as writer:
        writer.add_histogram("zeros", numpy.zeros(4), 3)
        writer.add_histogram_raw("endless", 0, 1, float("inf"), 1, 1, [1], [float("inf")], 4)
        writer.file_writer.event_writer.add_event(TheirEvent(graph_def=b"g"))
        writer.add_hparams({"lr": float("inf"), "decay": float("nan"), "layers": 2}, {"score": 1.0}, name="h")
    done = bring(capsys, tmp_path / "home", tmp_path / "logs")
    records = [record for run in done["runs"] for record in read_run(tmp_path / "home", run["run"])]
    zeros = series(records, "zeros")[3]
    assert (zeros.count, zeros.total, zeros.low, zeros.high) == (4, 0.0, 0.0, 0.0)
    configs = [each.attrs["config"] for each in records if isinstance(each, Event) and each.attrs.get("config")]
    assert [(each["lr"], str(each["decay"]), each["layers"]) for each in configs] == [(float("inf"), "nan", 2)]
    assert done["left_out"] == {"graphs": 1, "events that cannot be read": 1}
    assert is_same(tmp_path / "home", tmp_path / "logs")


def test_what_tensorflow_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its second version writes tensors for everything: scalars, histograms, texts, images and audio arrive."""
    tf = pytest.importorskip("tensorflow", reason="a real writer of event files")
    writer = tf.summary.create_file_writer(str(tmp_path / "logs"))
    with writer.as_default():
        for step in range(20):
            tf.summary.scalar("loss", step / 4, step)
        tf.summary.histogram("weights", [1.0, 2.0, 2.0, 5.0], 3)
        tf.summary.text("note", "a | b", 4)
        tf.summary.image("picture", numpy.zeros((2, 4, 4, 3)), 5)
        tf.summary.audio("sound", numpy.zeros((1, 80, 1), "float32"), 8000, 6)
    writer.close()
    done = bring(capsys, tmp_path / "home", tmp_path / "logs")
    records = list(read_run(tmp_path / "home", done["runs"][0]["run"]))
    assert series(records, "loss") == {step: step / 4 for step in range(20)}
    assert series(records, "weights")[3].count == 4
    assert [each.body for each in records if isinstance(each, Log)] == ["a | b"]
    media = [each.attrs["file"] for each in records if isinstance(each, Event) and "file" in each.attrs]
    assert sorted(Path(name).suffix for name in media) == [".png", ".png", ".wav"]
    assert done["left_out"] == {}


def test_images_while_they_grow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An image that is still being written waits, and comes once."""
    with tensorboardX.SummaryWriter(str(tmp_path / "logs")) as writer:
        write_all(writer)
    (file,) = (tmp_path / "logs").iterdir()
    whole, home = file.read_bytes(), tmp_path / "home"
    for share in range(1, 9):
        file.write_bytes(whole[: len(whole) * share // 8])
        run = bring(capsys, home, tmp_path / "logs")["runs"][0]["run"]
    images = [each for each in read_run(home, run) if isinstance(each, Event) and each.name == "tensorboard.images"]
    assert [each.step for each in images] == [0, 1, 2, 5] or [each.step for each in images] == [0, 1, 2, 5, 5]
    assert is_same(home, tmp_path / "logs")


def test_an_import_of_event_files_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended after each chunk and begun again, nothing is missing and nothing comes twice, files among it."""
    monkeypatch.setattr(tensorboard, "CHUNK_BYTES", 200)
    with tensorboardX.SummaryWriter(str(tmp_path / "logs")) as writer:
        write_all(writer)
    assert import_in_pieces(tmp_path / "home", TensorBoard(), tmp_path / "logs") > 5
    assert is_same(tmp_path / "home", tmp_path / "logs")


def record(body: bytes) -> bytes:
    """A record of an event file."""
    head = struct.pack("<Q", len(body))
    return head + struct.pack("<I", masked(crc32c(head))) + body + struct.pack("<I", masked(crc32c(body)))


def scalar(tag: bytes, step: int, value: float, time: float = 1.7e9) -> bytes:
    """A record with one number."""
    varint = b""
    step %= 1 << 64
    while step > 127:
        varint, step = varint + bytes([step & 0x7F | 0x80]), step >> 7
    inner = b"\x0a" + bytes([len(tag)]) + tag + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(inner)]) + inner
    return record(b"\x09" + struct.pack("<d", time) + b"\x10" + varint + bytes([step, 0x2A, len(summary)]) + summary)


def test_columns_and_single_records_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers read many at a time equal those read one by one, for steps of all sizes, odd values and odd times."""
    steps = (0, 1, 127, 128, 16383, 16384, 2**21, 2**28, 2**34, 2**35, 2**62, -1, -5, -(2**63))
    values = (0.0, -0.0, 1.5, float("nan"), float("inf"), -float("inf"), 12345.5, 1e-45)
    times = (1.7e9, 0.0, -1.0, 1e300, float("nan"))
    data = b"".join(
        scalar(tag, step, value, time)
        for tag in (b"a", b"b", b"\xc3\xa9", b"loss/x")
        for time in times
        for step in steps
        for value in values
    )
    (tmp_path / "x.tfevents.1").write_bytes(data * 2)

    def read() -> list[Metric]:
        chunks = EventFile(tmp_path / "x.tfevents.1", 1).read(None, lambda reason, count: None)
        found = [unpack_record(packed) for chunk in chunks for packed in chunk.records]
        return [each for each in found if isinstance(each, Metric)]

    fast = read()
    monkeypatch.setattr("stepscope.dialects.tensorboard.wire.scalars._FEWEST", 10**9)
    slow = read()
    assert len(fast) == 4 * len(times) * (len(steps) - 1) * len(values) * 2  # the least step means none
    assert [repr(each) for each in fast] == [repr(each) for each in slow]


def test_an_event_that_is_too_large_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An oversized event is skipped unread; later events are imported."""
    monkeypatch.setattr(tensorboard, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(tensorboard, "LARGEST_EVENT", 5000)
    data = scalar(b"a", 1, 1.0) + record(b"\x09" + bytes(8) + b"\x1a\xf0\x2e" + bytes(6000)) + scalar(b"a", 2, 2.0)
    (tmp_path / "x.tfevents.1").write_bytes(data)
    done = bring(capsys, tmp_path / "home", tmp_path / "x.tfevents.1")
    assert (done["runs"][0]["values"], done["left_out"]) == (2, {"events that are too large": 1})
    assert bring(capsys, tmp_path / "home", tmp_path / "x.tfevents.1")["left_out"] == {}
