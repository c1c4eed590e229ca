"""The two sinks of Datadog: DogStatsD lines to an Agent, and the HTTP intake without one."""

import errno
import time
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

import msgspec

from stepscope.dialects.datadog.sink.agent_socket import Agent
from stepscope.dialects.datadog.wire.items import Item, Point, is_timely
from stepscope.dialects.datadog.wire.payloads import (
    LONGEST_LINE,
    ROUTES,
    SETS,
    next_body,
    pack,
    route_of,
    write_line,
    write_plain_line,
)
from stepscope.dialects.datadog.wire.translate import Translator
from stepscope.extend.sink import (
    BLAMES_A_RECORD,
    DENIED,
    SERVER_ERROR,
    Answer,
    Connection,
    Delivery,
    explain,
    not_from,
    retry_after,
    without_secrets,
)
from stepscope.model.errors import Retry
from stepscope.model.ports import Batch

LATE = "too old or too far in the future for Datadog"


class ItemDelivery(Delivery[Item]):
    """The current batches as Datadog's items, without those that became too old."""

    def __init__(
        self, translator: Translator, now: Callable[[], float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(clock)
        self._translator, self._now = translator, now
        self._points_failed = False

    def translate(self, batches: Sequence[Batch], timeout: float) -> None:
        """Continue where the last attempt on the same batches ended, else start."""
        if self.begin(batches, timeout):
            self._points_failed = False
            self.parts, refused = self._translator.translate(batches)
            for reason, count in refused.items():
                self.refuse(reason, count)
        now = self._now()
        timely = [item for item in self.parts if is_timely(item, now)]
        self.refuse(LATE, len(self.parts) - len(timely))
        self.parts = timely

    def fail_items(self, error: Retry, items: Sequence[Item]) -> None:
        """Mark items on which the server failed."""
        self._points_failed |= any(isinstance(item, Point) for item in items)
        self.fail(error, [item.where for item in items])

    def finish(self) -> Mapping[str, int]:
        """Commit the translator's state, unless its points are sent again, and finish."""
        if not self._points_failed:
            self._translator.commit()
        return self.end()


BURST = 64
"""Consecutive datagrams after which to pause, so that the Agent can read: its buffer holds about a hundred."""
PAUSE_SECONDS = 0.005
TOO_LONG = f"longer than {LONGEST_LINE} bytes as a DogStatsD line"
_NO_AGENT = (errno.ECONNREFUSED, errno.ENOENT, errno.ENOTCONN, errno.ECONNRESET, errno.EPIPE)


class DogStatsdSink:
    """Sends lines in datagrams. Datagrams that UDP loses are not noticed; a full socket is retried."""

    divisible = True

    def __init__(
        self,
        agent: Agent,
        translator: Translator,
        *,
        timeout: float,
        most_bytes: int,
        plain: bool = False,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.timeout = timeout
        self._agent, self._most_bytes, self._plain = agent, most_bytes, plain
        self._now, self._sleep = now, sleep
        self._delivery = ItemDelivery(translator, now, clock)

    def write(self, batches: Sequence[Batch]) -> Mapping[str, int]:
        """Send what is not sent yet. Spans and logs are skipped: DogStatsD does not have them."""
        delivery = self._delivery
        delivery.translate(batches, self.timeout)
        lines = self._lines(delivery)
        sent = 0
        try:
            for number, (datagram, count) in enumerate(pack(lines, self._most_bytes)):
                delivery.time_left()
                if number and number % BURST == 0:
                    self._sleep(PAUSE_SECONDS)
                self._send(datagram, progressed=sent > 0)
                sent += count
        finally:
            del delivery.parts[:sent]
        return delivery.finish()

    def close(self) -> None:
        """Close the socket."""
        self._agent.close()

    def _lines(self, delivery: ItemDelivery) -> list[bytes]:
        """Write the lines of all items, and keep the items that have one."""
        now = self._now()
        kept: list[tuple[Item, bytes]] = []
        for item in delivery.parts:
            line = write_plain_line(item) if self._plain else write_line(item, now)
            if line is None:
                continue
            if len(line) > LONGEST_LINE:
                delivery.refuse(TOO_LONG)
            else:
                kept.append((item, line))
        delivery.parts = [item for item, _ in kept]
        return [line for _, line in kept]

    def _send(self, datagram: bytes, *, progressed: bool) -> None:
        try:
            self._agent.send(datagram)
        except ImportError as error:
            raise Retry(f"{error}: pip install 'stepscope[datadog]'") from error
        except OSError as error:
            if isinstance(error, (BlockingIOError, TimeoutError)) or error.errno == errno.ENOBUFS:
                if progressed:
                    raise Retry("the Agent reads slower than we write; delivery continues", after=0.0) from error
                raise Retry("the Agent does not read its socket") from error
            self._agent.close()
            if error.errno in _NO_AGENT:
                raise Retry(f"refused: no Agent listens there ({error.strerror})") from error
            raise Retry(explain(error)) from error


_WAIT = DENIED | {408, 429}


class IntakeSink:
    """Sends points, events, checks and logs to their paths. Not thread-safe."""

    divisible = True

    def __init__(
        self,
        url: str,
        logs_url: str,
        api_key: str,
        translator: Translator,
        *,
        timeout: float,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.timeout = timeout
        self._url, self._now = url, now
        self._delivery = ItemDelivery(translator, now, clock)
        main = Connection(url)
        self._connections = dict.fromkeys(ROUTES, main)
        self._paths = {name: urlsplit(url).path.rstrip("/") + route.path for name, route in ROUTES.items()}
        if logs_url != url:
            self._connections["logs"] = Connection(logs_url)
            self._paths["logs"] = urlsplit(logs_url).path.rstrip("/") + ROUTES["logs"].path
        self._headers = {"dd-api-key": api_key, "content-type": "application/json", "user-agent": "Stepscope"}

    def write(self, batches: Sequence[Batch]) -> Mapping[str, int]:
        """Send what is not sent yet. Spans are skipped: they go to Datadog as OTLP."""
        delivery = self._delivery
        delivery.translate(batches, self.timeout)
        queues: dict[str, list[Item]] = {name: [] for name in ROUTES}
        for item in delivery.parts:
            name = route_of(item)
            if name is None:
                delivery.refuse(SETS)
            else:
                queues[name].append(item)
        try:
            for name, items in queues.items():
                while items:
                    self._send(name, items, delivery.time_left())
        finally:
            delivery.parts = [item for items in queues.values() for item in items]
        return delivery.finish()

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            connection.close()

    def _send(self, name: str, items: list[Item], timeout: float) -> None:
        """Send the next request of a path and remove what was settled."""
        body = next_body(ROUTES[name], items)
        headers = {**self._headers, "content-encoding": "deflate"} if body.compressed else self._headers
        answer = self._connections[name].post(self._paths[name], body.content, headers, timeout)
        if 200 <= answer.status < 300:
            if not _is_intake(answer):
                raise not_from("Datadog's intake", answer)
            for error in _errors(answer):
                self._delivery.refuse(error)
            del items[: body.held]
            return
        reason, sent = self._reason(answer), items[: body.held]
        retry = Retry(reason, self._after(answer))
        if answer.status == SERVER_ERROR:
            self._delivery.fail_items(retry, sent)
        elif answer.status in _WAIT or answer.status > SERVER_ERROR:
            raise retry
        else:
            where = [item.where for item in sent]
            self._delivery.reject(reason, where, together=answer.status in BLAMES_A_RECORD)
        del items[: body.held]

    def _after(self, answer: Answer) -> float | None:
        after = retry_after(answer.headers, self._now)
        reset = answer.headers.get("x-ratelimit-reset", "")
        if after is None and reset.isascii() and reset.isdigit():
            return float(reset[:9]) or None
        return after

    def _reason(self, answer: Answer) -> str:
        text = "; ".join(_errors(answer)) or answer.body[:200].decode("utf-8", "replace")
        if answer.status in (401, 403):
            where = without_secrets(self._url)
            text = f"the API key is not valid at {where}: check DD_API_KEY, and DD_SITE for the region. {text}"
        elif answer.status == 413:
            text = f"too large for one request. {text}"
        return f"HTTP {answer.status}: {text[:300]}".rstrip(": .")


def _is_intake(answer: Answer) -> bool:
    """Whether a success is the intake's: a JSON object, or empty, as the intakes of some collectors answer."""
    try:
        return not answer.body or isinstance(msgspec.json.decode(answer.body), dict)
    except msgspec.DecodeError:
        return False


def _errors(answer: Answer) -> list[str]:
    """Read the errors of an answer; the intake lists them with refusals, and sometimes with a success."""
    try:
        found = msgspec.json.decode(answer.body)
    except msgspec.DecodeError:
        return []
    listed = found.get("errors") if isinstance(found, dict) else None
    if not isinstance(listed, list):
        return []
    return [str(each.get("detail", each) if isinstance(each, dict) else each)[:100] for each in listed]
