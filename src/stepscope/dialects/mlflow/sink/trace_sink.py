"""The traces of an MLflow server: spans to /v1/traces, a trace in one request, linked to its experiment and run."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from stepscope.dialects.mlflow.sink import Target
from stepscope.dialects.mlflow.sink.run_sink import Entry, Found, Runs, by_run
from stepscope.dialects.mlflow.sink.tracking_server import SERVICE, NoAnswer, NoRestApi, Refused, Server
from stepscope.dialects.mlflow.wire import TRACES
from stepscope.extend.sink import SERVER_ERROR, Delivery, compress, not_from
from stepscope.model.errors import Retry
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Span
from stepscope.wire.otlp.encode.encode_request import BAD_IDS, Request, encode
from stepscope.wire.otlp.names import CONTENT_TYPES, HEADER_EXPERIMENT, HEADER_RUN
from stepscope.wire.otlp.replies import NotOtlp, read_http_reply

MAX_SPANS = 500
"""Spans of whole traces in one request; MLflow stores all of a request or nothing."""
SERVER_ERRORS = frozenset({422, SERVER_ERROR})
"""MLflow answers 422 for a locked database as well as for a span it cannot read."""
LINK_SECONDS, LOOK_SECONDS = 4.0, 10.0
"""How long spans wait for their run to be created, and the interval of searches afterwards."""
AFTERWARDS_SECONDS = 2.0
"""How long the run of already sent spans is searched."""
LEAVE_SECONDS = 5.0
"""Time limit for the last links."""
MAX_LINKS = 100
MAX_UNLINKED = 10_000


class TracesSink:
    """Sends spans, by trace; other records are ignored. Not thread-safe.

    It never creates a run: if there is none after a while, spans are sent without it and linked later. With
    the id of an experiment nothing is looked up before the spans are sent. A server without MLflow's REST API, such as
    a plain collector, gets them without an experiment.
    """

    divisible = True

    def __init__(self, target: Target, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.timeout = target.timeout
        self._clock = clock
        self._server = Server(target, clock)
        self._runs = Runs(self._server, target, clock=clock)
        self._delivery: Delivery[list[Entry]] = Delivery(clock)
        self._waiting: dict[str, float] = {}
        """When the run of some spans was first searched without success."""
        self._looked: dict[str, float] = {}
        self._unlinked: dict[str, tuple[Writer, list[str]]] = {}
        """Traces that MLflow has without their run, and their writers."""
        self._no_rest_api = float("-inf")
        """When the REST API was last found missing."""

    def write(self, batches: Sequence[Batch]) -> Mapping[str, int]:
        """Send the spans that have ended and are not sent yet. A span sent twice is stored once: it has an id."""
        self._server.allow(self.timeout)
        if self._delivery.begin(batches, self.timeout):
            for entries in by_run(batches).values():
                sound = []
                for entry in entries:
                    if isinstance(span := entry.record, Span) and span.duration is not None:
                        if len(span.trace_id) == 16 and len(span.span_id) == 8:
                            sound.append(entry)
                        else:
                            self._delivery.refuse(BAD_IDS)
                if sound:
                    self._delivery.parts.append(sound)
        self._delivery.send(self._deliver)
        return self._delivery.end()

    def close(self) -> None:
        """Link traces that are not linked yet, if their runs exist by now, and close the connection."""
        self._server.allow(LEAVE_SECONDS)
        for writer, _ in list(self._unlinked.values()):
            with contextlib.suppress(Retry):
                if (run := self._runs.find(writer)) is not None:
                    self._link(writer, run)
        self._unlinked.clear()
        self._server.close()

    def _deliver(self, entries: list[Entry], timeout: float) -> None:
        """Deliver the spans of one run, within the time limit of the call."""
        writer = entries[0].writer
        run, experiment = self._target_of(writer)
        headers = {
            "content-type": CONTENT_TYPES["protobuf"],
            "content-encoding": "gzip",
            **({HEADER_EXPERIMENT: experiment} if experiment is not None else {}),
            **({HEADER_RUN: run.id} if run is not None else {}),
        }
        for number, request in enumerate(_requests(entries)):
            step = writer.run, number
            if step not in self._delivery.done:
                self._send(request, headers)
                self._delivery.done.add(step)
        spans = [entry.record for entry in entries if isinstance(entry.record, Span)]
        self._link(writer, run, [f"tr-{span.trace_id.hex()}" for span in spans if not span.parent_id])
        if run is None and self._runs.experiments.given is not None:
            self._link_later(writer)

    def _target_of(self, writer: Writer) -> tuple[Found | None, str | None]:
        """The run and the experiment of spans; neither where the server has no REST API."""
        given = self._runs.experiments.given
        if given is not None:
            return self._runs.known(writer), given
        if self._clock() - self._no_rest_api < LOOK_SECONDS:
            return None, None
        try:
            run = self._find(writer)
            return run, run.experiment if run is not None else self._runs.experiments.find(writer.project)
        except NoRestApi:
            self._no_rest_api = self._clock()
            return None, None

    def _link_later(self, writer: Writer) -> None:
        """Periodically search the run of spans that were sent without it, and link them."""
        now = self._clock()
        if now - self._looked.get(writer.run, float("-inf")) < LOOK_SECONDS:
            return
        self._looked[writer.run] = now
        self._server.allow(AFTERWARDS_SECONDS)
        with contextlib.suppress(Retry):
            run = self._runs.find(writer)
            if run is not None:
                self._link(writer, run)
        self._server.allow(self.timeout)

    def _find(self, writer: Writer) -> Found | None:
        """Find the run; it may be created soon, and spans wait for it only briefly."""
        now = self._clock()
        since = self._waiting.setdefault(writer.run, now)
        if now - since >= LINK_SECONDS and now - self._looked.get(writer.run, float("-inf")) < LOOK_SECONDS:
            return None
        self._looked[writer.run] = now
        try:
            run = self._runs.find(writer)
        except NoRestApi:
            raise
        except NoAnswer:  # time of an outage does not count
            del self._waiting[writer.run]
            raise
        except Retry:
            if now - since >= LINK_SECONDS:
                return None
            raise
        if run is None and now - since < LINK_SECONDS:
            raise Retry(f"the run {writer.run} is not in MLflow yet", after=1.0)
        if run is not None:
            del self._waiting[writer.run], self._looked[writer.run]
        return run

    def _send(self, request: Request, headers: Mapping[str, str]) -> None:
        try:
            answer = self._server.send("POST", TRACES, compress(request.body), headers)
            content_type = answer.headers.get("content-type", "")
            partial = read_http_reply(request.signal, "protobuf", content_type, answer.body)
            self._delivery.refuse(partial.message or "partial success", partial.rejected)
        except NotOtlp:
            raise not_from(SERVICE, answer) from None
        except Refused as error:
            if error.status == 422 and HEADER_EXPERIMENT not in headers:
                raise Retry(f"{error}: MLflow's REST API does not answer; give `experiment_id`") from error
            if error.status in SERVER_ERRORS:
                self._delivery.fail(Retry(str(error)), request.where)
            elif error.is_absent:
                self._runs.experiments.forget()
                raise Retry(str(error)) from error
            elif error.status in (400, 404, 405, 413, 415, 501):
                self._delivery.reject(str(error), request.where, together=error.status in (400, 413))
            else:
                raise Retry(str(error)) from error

    def _link(self, writer: Writer, run: Found | None, traces: Sequence[str] = ()) -> None:
        """Remember traces without a run and link them once it exists; failures are ignored."""
        if run is None:
            waiting = self._unlinked.setdefault(writer.run, (writer, []))[1]
            waiting += traces[: MAX_UNLINKED - len(waiting)]
            return
        waiting = self._unlinked.pop(writer.run, (writer, []))[1]
        while waiting:
            try:
                self._server.post("traces/link-to-run", {"trace_ids": waiting[:MAX_LINKS], "run_id": run.id})
            except (Refused, Retry):
                self._unlinked[writer.run] = writer, waiting
                return
            del waiting[:MAX_LINKS]


def _requests(entries: list[Entry]) -> Iterator[Request]:
    """Encode spans, those of a trace together, and give each request the indices of its records."""
    traces: dict[bytes, list[Entry]] = {}
    for entry in entries:
        if isinstance(entry.record, Span):
            traces.setdefault(entry.record.trace_id, []).append(entry)
    chunk: list[Entry] = []
    for trace in traces.values():
        if chunk and len(chunk) + len(trace) > MAX_SPANS:
            yield from _encode(chunk)
            chunk = []
        chunk += trace
    yield from _encode(chunk)


def _encode(chunk: list[Entry]) -> Iterator[Request]:
    pairs = [(writer, [record]) for _, writer, record in chunk]
    for request in encode(pairs).requests:
        where = [chunk[index].at for index in request.where]
        yield Request(request.signal, request.body, request.count, where)
