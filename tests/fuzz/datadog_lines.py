"""Datagrams of DogStatsD: lines as they come, between lines that are right."""

from collections.abc import Iterator

from stepscope.dialects.datadog.listener.processes import Processes
from stepscope.dialects.datadog.listener.samples import Samples
from stepscope.hub.receivers.ingest import Upload
from stepscope.model.records import Metric
from tests.fuzz.hub_path import HubPath

NOW = 1_700_000_000_000_000_000
_BEFORE, _AFTER = "before:1|g|#run_id:r\n", "\nafter:1|g|#run_id:r"


def check(data: bytes) -> None:
    """Take a datagram twice: the second time its lines are known; the neighbours are stored both times."""
    path, upload, kept = HubPath(), Upload(), 0
    samples = Samples(Processes(), "box", lambda name, value: None)
    for number in range(2):
        samples.take(_BEFORE + data.decode("utf-8", "replace") + _AFTER, NOW + number, "far" if number else "")
        samples.settle()
    samples.end_interval(NOW + 5)
    for origin, records in samples.drain():
        metrics = [record for record in records if isinstance(record, Metric)]
        kept += sum("before" in metric.values or "after" in metric.values for metric in metrics)
        path.entry.add(upload, origin.writer(NOW), records, None)
    assert kept >= 2, "a line cost its neighbours"
    path.entry.submit(upload)
    path.finish()


def seeds() -> Iterator[bytes]:
    """Lines of every type and version."""
    yield b"a.b:1|g\na.b:2.5|g|#x:y\nc:1:2:3|d|@0.5|#run_id:q,rank:1|c:ci-1|e:it|card:low\nd:5|c|T1700000000"
    yield b"train.step:5|g|#run_id:q\nloss:nan|g|#run_id:q\nu:m|s\nt:3|ms|@0.1\nh:1|h"
    yield "_e{5,6}:Titel|a|\\nü|d:1700000000|h:x|k:k|p:low|s:s|t:error|#a:b,step:4".encode()
    yield b"_sc|name|2|d:1700000000|h:x|#a:b|m:msg|x|c:id|card:low"
    yield b"datadog.dogstatsd.client.packets_sent:5|c|#client:py"
