"""Datadog without an Agent: its HTTP intake, whose answers are explained and whose limits are kept."""

import time
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

import msgspec

from stepscope.model.errors import Retry
from stepscope.model.ports import Batch
from stepscope.sinks.datadog.delivery import ItemDelivery
from stepscope.sinks.http import BLAMES_A_RECORD, DENIED, SERVER_ERROR, Answer, Connection, retry_after, without_secrets
from stepscope.wire.datadog.datadog_items import Item
from stepscope.wire.datadog.datadog_payloads import ROUTES, SETS, next_body, route_of
from stepscope.wire.datadog.datadog_translate import Translator

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
        """Send what is not sent yet. Spans are passed over: they go to Datadog as OTLP."""
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
        """Send the next request of a path and take what was settled off the front."""
        body = next_body(ROUTES[name], items)
        headers = {**self._headers, "content-encoding": "deflate"} if body.compressed else self._headers
        answer = self._connections[name].post(self._paths[name], body.content, headers, timeout)
        if 200 <= answer.status < 300:
            for error in _errors(answer):
                self._delivery.refuse(error)
            del items[: body.held]
            return
        reason, sent = self._reason(answer), items[: body.held]
        again = Retry(reason, self._after(answer))
        if answer.status == SERVER_ERROR:
            self._delivery.fail_items(again, sent)
        elif answer.status in _WAIT or answer.status > SERVER_ERROR:
            raise again
        else:
            where = [item.where for item in sent]
            self._delivery.reject(reason, where, together=answer.status in BLAMES_A_RECORD)
        del items[: body.held]

    def _after(self, answer: Answer) -> float | None:
        said = retry_after(answer.headers, self._now)
        reset = answer.headers.get("x-ratelimit-reset", "")
        if said is None and reset.isascii() and reset.isdigit():
            return float(reset[:9]) or None
        return said

    def _reason(self, answer: Answer) -> str:
        text = "; ".join(_errors(answer)) or answer.body[:200].decode("utf-8", "replace")
        if answer.status in (401, 403):
            where = without_secrets(self._url)
            text = f"the API key is not valid at {where}: check DD_API_KEY, and DD_SITE for the region. {text}"
        elif answer.status == 413:
            text = f"too large for one request. {text}"
        return f"HTTP {answer.status}: {text[:300]}".rstrip(": .")


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
