"""Media in `log`: captured at once, encoded elsewhere, written before the record that names them, and all counted."""

import hashlib
import io
import itertools
import os
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepscope
from stepscope.journal import layout
from stepscope.journal.blobs import find_blob
from stepscope.model.names import EVENT_MEDIA
from stepscope.model.records import Event, Histogram, Metric
from stepscope.sdk.media_values import capture, kinds
from stepscope.sdk.media_values import writer as media_writer
from stepscope.sdk.media_values.medium import Medium
from tests.sdk.conftest import Records, python_core

Logged = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def logged(run: stepscope.Run, records: Records) -> Logged:
    """The attributes of what was logged, with the step, each beside its blob."""

    def read() -> list[dict[str, Any]]:
        found = [each for each in records(Event) if isinstance(each, Event) and each.name == EVENT_MEDIA]
        return [{**each.attrs, "step": each.step, "data": blob(run, each.attrs["sha256"])} for each in found]

    return read


def blob(run: stepscope.Run, digest: str) -> bytes:
    """The content of a blob, which has the digest that it is named by."""
    path = find_blob(run.home, run.id, digest)
    assert path is not None
    data = path.read_bytes()
    assert hashlib.sha256(data).hexdigest() == digest
    return data


def counts(run: stepscope.Run, *outcomes: str) -> dict[str, int]:
    """The counters of some outcomes."""
    return {key: count for key, count in run.outcomes.snapshot().items() if key.startswith(outcomes)}


def test_an_image_beside_a_number(run: stepscope.Run, logged: Logged, records: Records) -> None:
    """Both are recorded at the step; the image is a PNG with its size, caption and key."""
    run.log({"loss": 1.5, "val": {"image": stepscope.Image(np.zeros((4, 6, 3), np.uint8), caption="a cat")}}, step=7)
    (image,) = logged()
    assert image["data"].startswith(b"\x89PNG")
    assert (image["key"], image["kind"], image["step"], image["caption"]) == ("val/image", "image", 7, "a cat")
    assert (image["width"], image["height"], image["format"]) == (6, 4, "png")
    assert (image["size"], image["name"]) == (len(image["data"]), "val-image-7.png")
    assert [each.values for each in records(Metric) if isinstance(each, Metric) and each.step == 7] == [{"loss": 1.5}]


def test_it_is_captured_at_once(run: stepscope.Run, logged: Logged) -> None:
    """What the loop does to its arrays afterwards changes nothing."""
    torch = pytest.importorskip("torch")
    array, tensor, raw = np.zeros((2, 2), np.uint8), torch.zeros(3, 2, 2), bytearray(b"GIF8old")
    run.log({"array": stepscope.Image(array), "tensor": stepscope.Image(tensor), "raw": stepscope.Image(raw)}, step=1)
    array[:], raw[4:] = 255, b"new"
    tensor.fill_(1.0)
    before = {each["key"]: each["data"] for each in logged()}
    run.log({"array": stepscope.Image(np.zeros((2, 2), np.uint8)), "tensor": stepscope.Image(torch.zeros(3, 2, 2))}, 2)
    after = {each["key"]: each["data"] for each in logged() if each["step"] == 2}
    assert before["raw"] == b"GIF8old"
    assert (before["array"], before["tensor"]) == (after["array"], after["tensor"])


def test_only_what_can_change_is_copied() -> None:
    """Arrays over bytes never change; those over a bytearray, or that are merely locked, do."""
    fixed = np.frombuffer(bytes(12), np.uint8).reshape(2, 2, 3)
    locked, changing = np.zeros((2, 2)), np.frombuffer(bytearray(4), np.uint8).reshape(2, 2)
    locked.flags.writeable = False
    assert capture.capture(fixed).read() is fixed
    for array in (locked, changing, fixed.copy()):
        assert not np.shares_memory(capture.capture(array).read(), array)


def test_an_array_that_the_caller_will_not_change_need_not_be_copied(run: stepscope.Run, logged: Logged) -> None:
    """With `copy=False` the encoder reads the caller's own memory, of arrays and of tensors; the files are the same."""
    torch = pytest.importorskip("torch")
    array, tensor = np.arange(12, dtype=np.uint8).reshape(2, 2, 3), torch.arange(12).reshape(3, 2, 2).byte()
    for given, own in ((array, array), (tensor, tensor.numpy())):
        kept, copied = stepscope.Image(given, copy=False), stepscope.Image(given)
        assert np.shares_memory(kept._source.read(), own)
        assert not np.shares_memory(copied._source.read(), own)
        run.log({"image": [kept, copied]})
    files = [each["data"] for each in logged()]
    assert files[0] == files[1]
    assert files[2] == files[3]


def test_every_source_of_an_image(run: stepscope.Run, logged: Logged, tmp_path: Path) -> None:
    """Arrays, tensors, Pillow's images, figures, paths and bytes."""
    pillow = pytest.importorskip("PIL.Image")
    torch = pytest.importorskip("torch")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    figure, axes = pyplot.subplots(figsize=(2, 1), dpi=50)
    axes.plot([1, 2])
    png = io.BytesIO()
    pillow.new("RGB", (5, 4)).save(png, "png")
    path = tmp_path / "a picture.png"
    path.write_bytes(png.getvalue())
    given = {
        "array": np.zeros((4, 5)),
        "list": [[0, 1, 2, 3, 4]] * 4,
        "tensor": torch.zeros(1, 4, 5, requires_grad=True),
        "short": torch.zeros(3, 4, 5, dtype=torch.bfloat16),
        "pillow": pillow.new("P", (5, 4)),
        "path": str(path),
        "bytes": png.getvalue(),
        "file": png,
        "figure": figure,
    }
    run.log({key: stepscope.Image(each) for key, each in given.items()} | {"drawn": stepscope.Figure(figure)}, step=0)
    pyplot.close(figure)
    found = {each["key"]: each for each in logged()}
    assert set(found) == {*given, "drawn"}
    for key, each in found.items():
        wanted = (100, 50) if key in ("figure", "drawn") else (5, 4)
        assert pillow.open(io.BytesIO(each["data"])).size == wanted, key
    assert found["path"]["name"] == "a picture.png"
    assert not counts(run, "rejected", "dropped")


def test_a_list_under_one_key(run: stepscope.Run, logged: Logged, records: Records) -> None:
    """Each of a list is recorded, under the same key and time."""
    run.log({"samples": [stepscope.Image(np.full((2, 2), each, np.uint8), caption=str(each)) for each in range(3)]}, 5)
    assert [each["name"] for each in logged()] == ["samples-5.png", "samples-5-1.png", "samples-5-2.png"]
    assert [(each["key"], each["caption"]) for each in logged()] == [
        ("samples", "0"),
        ("samples", "1"),
        ("samples", "2"),
    ]
    assert len({each.time for each in records(Event) if isinstance(each, Event) and each.name == EVENT_MEDIA}) == 1


def test_sounds_videos_files_and_pages(run: stepscope.Run, logged: Logged, tmp_path: Path) -> None:
    """All other kinds, from memory and from files."""
    notes = tmp_path / "notes.csv"
    notes.write_text("a,b\n1,2\n")
    run.log(
        {
            "sound": stepscope.Audio(np.zeros(100), 8000, caption="quiet"),
            "clip": stepscope.Video(np.zeros((3, 4, 4, 3), np.uint8)),
            "file": stepscope.File(notes),
            "named": stepscope.File(b"\x00\x01", name="weights.bin"),
            "page": stepscope.Html("<b>bold</b>"),
        },
        step=1,
    )
    found = {each["key"]: each for each in logged()}
    assert {key: (each["kind"], each["format"], each["name"]) for key, each in found.items()} == {
        "sound": ("audio", "wav", "sound-1.wav"),
        "clip": ("video", "gif", "clip-1.gif"),
        "file": ("file", "csv", "notes.csv"),
        "named": ("file", "bin", "weights.bin"),
        "page": ("html", "html", "page-1.html"),
    }
    assert (found["file"]["data"], found["page"]["data"]) == (notes.read_bytes(), b"<b>bold</b>")


def test_histograms_are_distributions(run: stepscope.Run, records: Records) -> None:
    """Of an array, a list, a tensor or counts; recorded as metrics of a step, as numbers are."""
    torch = pytest.importorskip("torch")
    run.log(
        {
            "array": stepscope.Histogram(np.array([[-1.0, 3.0], [np.nan, 0.0]]), bins=4),
            "list": stepscope.Histogram([1, 1, 2]),
            "tensor": stepscope.Histogram(torch.arange(10.0)),
            "range": stepscope.Histogram(range(10)),
            "counts": stepscope.Histogram(counts=[3, 1], edges=[0.0, 0.5, 2.0]),
        },
        step=3,
    )
    found = {
        key: (value, each.step, each.instrument)
        for each in records(Metric)
        if isinstance(each, Metric) and each.step == 3
        for key, value in each.values.items()
    }
    assert {key: value.count for key, (value, _, _) in found.items() if isinstance(value, Histogram)} == {
        "array": 3, "list": 3, "tensor": 10, "range": 10, "counts": 4
    }  # fmt: skip
    assert found["array"][0] == Histogram(3, None, -1.0, 3.0, (-1.0, 0.0, 1.0, 2.0, 3.0), (0, 1, 1, 0, 1, 0))
    assert {instrument for _, _, instrument in found.values()} == {None}


class Hostile:
    """An object that raises whatever it is asked."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


def test_what_cannot_be_used_is_rejected_by_name(run: stepscope.Run, logged: Logged, tmp_path: Path) -> None:
    """Nothing raises; each reason is counted, and what is beside it is kept."""
    torch = pytest.importorskip("torch")
    os.mkfifo(tmp_path / "fifo")
    bad = {
        "shape": stepscope.Image(np.zeros((2, 3, 5))),
        "type": stepscope.Image(object()),
        "texts": stepscope.Image(np.array(["a"])),
        "hostile": stepscope.Image(Hostile()),
        "meta": stepscope.Image(torch.zeros(2, 2, device="meta")),
        "gone": stepscope.Image(tmp_path / "gone.png"),
        "fifo": stepscope.File(tmp_path / "fifo"),
        "folder": stepscope.File(tmp_path),
        "rate": stepscope.Audio(np.zeros(3)),
        "format": stepscope.Image(np.zeros((2, 2)), format="nonsense"),
        "video": stepscope.Video(np.zeros((2, 2))),
        "number": stepscope.Html(3),
        "empty": stepscope.Histogram([]),
        "complex": stepscope.Histogram(5j),
        "mixed": [stepscope.Image(np.zeros((2, 2))), 1],
    }
    run.log({**bad, "good": stepscope.Image(np.zeros((2, 2)))}, step=1)
    assert [each["key"] for each in logged()] == ["good"]
    assert set(run.outcomes.rejected_keys()) == set(bad)
    assert run.outcomes.rejected_keys()["gone"] == "unreadable file: No such file or directory"
    assert run.outcomes.rejected_keys()["meta"] == "on device meta, which holds no values"
    assert sum(counts(run, "rejected").values()) == len(bad)


def test_equal_content_is_one_blob(run: stepscope.Run, logged: Logged) -> None:
    """The same image at many steps takes the disk once, and counts once against the quota."""
    for step in range(5):
        run.log({"same": stepscope.Image(np.zeros((8, 8), np.uint8))}, step=step)
    found = logged()
    assert len(found) == 5
    assert len({each["sha256"] for each in found}) == 1
    assert run.flusher.blob_bytes == found[0]["size"]


class Stuck(Medium):
    """A medium whose encoding waits for the test."""

    __slots__ = ("_gate",)

    def __init__(self, gate: threading.Event, data: bytes) -> None:
        self._gate = gate
        super().__init__(data)

    def encode(self, *, fast: bool = False) -> Any:
        """Wait, then encode."""
        assert self._gate.wait(300)
        return super().encode(fast=fast)


def test_what_waits_is_bounded_in_bytes(run: stepscope.Run, logged: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound they are dropped and counted by name; written and dropped are all that was offered."""
    monkeypatch.setattr(media_writer, "MAX_BYTES", 10_000)
    gate = threading.Event()
    for number in range(30):
        run.log({"big": Stuck(gate, bytes([number]) * 1000)}, step=number)
    assert counts(run, "dropped") == {"dropped/event/media waiting": 20}
    gate.set()
    assert [each["step"] for each in logged()] == list(range(10))
    status = run.finish(timeout=300)
    assert (status.dropped, status.recorded) == (20, True)


def test_the_end_waits_for_what_is_encoded_and_counts_the_rest(run: stepscope.Run) -> None:
    """`finish` returns in time though an encoder hangs; what it did not encode is counted once."""
    gate = threading.Event()
    run.log({"a": Stuck(gate, b"1"), "b": Stuck(gate, b"2")}, step=1)
    assert not run.flush(0.01)
    run.finish(timeout=0.2)
    assert counts(run, "dropped") == {"dropped/event/media not encoded in time": 2}
    gate.set()
    run.log({"late": stepscope.Image(np.zeros((2, 2)))}, step=2)
    assert counts(run, "dropped")["dropped/event/finished"] == 1


def test_the_disk_quota_holds(tmp_path: Path) -> None:
    """Media take half of the quota at most; more are dropped and counted, and numbers are still recorded."""
    run = stepscope.init(project="p", home=tmp_path, probes=False, otel=False, disk_quota=4 * 1024**2)
    for step in range(4):
        run.log({"file": stepscope.File(bytes([step]) * 1_000_000, name="f"), "loss": 1.0}, step=step)
        assert run.flush(300)
    assert counts(run, "dropped") == {"dropped/event/media disk quota": 2}
    assert run.flusher.blob_bytes == 2_000_000
    run.finish(timeout=300)


def test_a_folder_that_cannot_be_written_is_counted(run: stepscope.Run, records: Records) -> None:
    """A full or broken disk costs the medium, and is counted."""
    assert records()
    (writer,) = layout.list_writers(run.home, run.id)
    (layout.writer_folder(run.home, run.id, writer) / "blobs").write_text("in the way")
    run.log({"image": stepscope.Image(np.zeros((2, 2)))}, step=1)
    assert run.flush(300)
    assert counts(run, "dropped") == {"dropped/event/media disk": 1}


def test_plain_numbers_stay_on_the_fast_path(run: stepscope.Run) -> None:
    """Logging an image does not make later calls with numbers alone slower."""
    python_core(stepscope.Run.log)(run, {"loss": 1.0}, step=0)
    assert run._plain is True
    run.log({"loss": 1.0, "image": stepscope.Image(np.zeros((2, 2)))}, step=1)
    assert run._plain is True


def test_a_forked_child_has_its_own(run: stepscope.Run, records: Records) -> None:
    """What waits in the parent is recorded by the parent alone, and the child records its own."""
    gate = threading.Event()
    run.log({"parent": Stuck(gate, b"parent")}, step=1)
    pid = os.fork()
    if pid == 0:
        run.log({"child": stepscope.File(b"child", name="c")}, step=2)
        os._exit(0 if run.flush(60) else 1)
    gate.set()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    found = [each.attrs["key"] for each in records(Event) if isinstance(each, Event) and each.name == EVENT_MEDIA]
    assert sorted(found) == ["child", "parent"]


def test_a_disabled_run_takes_media() -> None:
    """Nothing is recorded, and nothing raises."""
    run = stepscope.init(disabled=True)
    run.log({"image": stepscope.Image(np.zeros((2, 2)))})
    assert run.finish(timeout=300)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (stepscope.Image, (10_000, 10_000, 3)),
        (lambda view: stepscope.Audio(view, sample_rate=8000), (300_000_000,)),
        (stepscope.Video, (30, 2000, 2000, 3)),
        (stepscope.Histogram, (300_000_000,)),
        (lambda view: stepscope.Image(np.zeros((2, 2)), masks={"all": view}), (20_000, 20_000)),
    ],
)
def test_what_is_too_large_is_refused_before_it_is_copied(run: stepscope.Run, make: Any, shape: Any) -> None:
    """A view of hundreds of megabytes takes neither memory nor time of the loop, and is counted."""
    view = np.broadcast_to(np.zeros(1, "u1"), shape)
    tracemalloc.start()
    try:
        run.log({"huge": make(view)})
        assert tracemalloc.get_traced_memory()[1] < 16 * 1024**2
    finally:
        tracemalloc.stop()
    assert counts(run, "rejected") == {"rejected/value/more than 64 MiB in memory": 1}


def test_a_distribution_of_endless_numbers_is_refused(run: stepscope.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """An iterator is read as far as there is room."""
    for module in (capture, kinds):
        monkeypatch.setattr(module, "MAX_BYTES", 8000)
    run.log({"endless": stepscope.Histogram(itertools.count())})
    assert [*counts(run, "rejected").values()] == [1]


def test_an_array_is_copied_in_the_order_of_its_memory() -> None:
    """Channels that come first in memory are not moved by the call, which would take 40 times as long."""
    rows = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(3, 2, 4)
    given = rows.transpose(1, 2, 0)
    captured = capture.capture(given)
    wanted = given.copy()
    rows[:] = 0
    assert isinstance(captured, capture.HostArray)
    assert captured.read().strides == given.strides
    assert np.array_equal(captured.read(), wanted)
