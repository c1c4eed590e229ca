"""One OTLP request, decoded: bytes in, records grouped by origin and refusals out."""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from stepscope.wire.otlp.decode import from_json, from_protobuf
from stepscope.wire.otlp.decode.logs import take_logs
from stepscope.wire.otlp.decode.origin import Group, Origins
from stepscope.wire.otlp.decode.points import take_points
from stepscope.wire.otlp.decode.spans import take_spans
from stepscope.wire.otlp.names import Encoding, Signal
from stepscope.wire.otlp.refusals import Rejections


class Decoded(NamedTuple):
    """What a request holds: `gaps` counts points flagged "no recorded value", neither taken nor refused."""

    groups: list[Group]
    rejections: Rejections
    gaps: int = 0


def decode(
    signal: Signal,
    encoding: Encoding,
    data: bytes,
    headers: Mapping[str, str] | None = None,
    clock: Callable[[], int] = time.time_ns,
) -> Decoded:
    """Decode the uncompressed body of an export request.

    Raises BadRequest when the body as a whole cannot be read, and nothing else. A bad item is refused alone
    and counted; so is what is left out of one that is taken. The headers may name an MLflow run and experiment.
    """
    refused = Rejections(signal)
    origins = Origins(headers)
    reader = from_protobuf if encoding == "protobuf" else from_json
    gaps = 0
    if signal == "traces":
        for resource, spans in reader.traces(data, refused):
            place = origins.enter(resource)
            for scope, raw_spans in spans:
                take_spans(raw_spans, scope, place, refused)
    elif signal == "metrics":
        for resource, metrics in reader.metrics(data, refused):
            place = origins.enter(resource)
            for scope, raw_metrics in metrics:
                gaps += take_points(raw_metrics, scope, place, refused)
    else:
        for resource, logs in reader.logs(data, refused):
            place = origins.enter(resource)
            for scope, raw_logs in logs:
                take_logs(raw_logs, scope, place, refused, clock)
    return Decoded(origins.groups(), refused, gaps)
