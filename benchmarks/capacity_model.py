"""What a fleet of GPUs needs, computed from the figures that docs/scale.md gives as measured."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCUMENT = Path(__file__).parents[1] / "docs" / "scale.md"
FLEETS = (10, 1_000, 100_000)
REPLICAS = 2
_DAY = 86_400
_DAYS_A_MONTH = 30
_NUMBER = r"([\d.,]+)"
_MEASURED = {
    "point_cpu": rf"\| CPU s per million points, all merges included \| {_NUMBER} \|",
    "span_cpu": rf"\| CPU s per million spans, all merges included \| {_NUMBER} \|",
    "points_through": rf"\| points \| {_NUMBER} \| {_NUMBER} \|",
    "spans_through": rf"\| spans \| {_NUMBER} \| {_NUMBER} \|",
    "busy": rf"so that cores are {_NUMBER} % busy",
    "load": rf"log {_NUMBER} metrics and {_NUMBER} spans a step at {_NUMBER} steps a second",
    "bytes": rf"{_NUMBER} bytes a point and {_NUMBER} a span",
    "prices": rf"{_NUMBER} an hour for a core, {_NUMBER} a month for a GB, kept for {_NUMBER} days",
}


@dataclass(frozen=True, slots=True)
class Model:
    """Points and spans a second of one GPU, and what one of each costs."""

    rates: tuple[float, float]
    cpu: tuple[float, float]
    """CPU seconds of the embedded store."""
    hubs: tuple[float, float]
    """CPU seconds of the hubs of a cluster, forwarding included. A hub commits on one core, so it is full after one."""
    servers: tuple[float, float]
    """CPU seconds of a cluster with two replicas and ZooKeeper."""
    busy: float
    """The share of a core that is planned with; the rest is for bursts, reads and what a dead hub leaves to others."""
    sizes: tuple[float, float]
    core_hour: float
    gigabyte_month: float
    days: float

    def _sum(self, *factors: tuple[float, float]) -> float:
        return sum(math.prod(each) for each in zip(self.rates, *factors, strict=True))

    @property
    def _cores(self) -> float:
        return (self._sum(self.hubs) + self._sum(self.servers)) / self.busy

    def row(self, gpus: int) -> str:
        """A row of the table for so many GPUs."""
        alone, cluster = gpus * self._sum(self.cpu) / self.busy, gpus * self._cores
        hubs = math.ceil(gpus * self._sum(self.hubs) / self.busy)
        size = gpus * self._sum(self.sizes) * _DAY
        points, spans = (_round(gpus * rate) for rate in self.rates)
        cells = (
            f"{gpus:,}",
            f"{points} points, {spans} spans",
            f"{alone:.2g}" if alone < 100 else f"{alone:.0f}",
            f"{cluster:.2g}" if cluster < 100 else f"{cluster:.0f}",
            f"{hubs}, {gpus * self._sum(self.hubs) / hubs:.0%} busy",
            f"{_size(size)}, {_size(size * REPLICAS)} with a replica",
        )
        return f"| {' | '.join(cells)} |"

    @property
    def money(self) -> float:
        """What a GPU costs in a day, with replicas."""
        cores = self._cores * self.core_hour * 24
        held = self._sum(self.sizes) * _DAY / 1e9 * REPLICAS * self.days
        return cores + held * self.gigabyte_month / _DAYS_A_MONTH

    @property
    def most_on_a_shard(self) -> int:
        """The GPUs whose records one hub, and so one shard, can store, in hundreds."""
        return int(self.busy / self._sum(self.hubs) / 100)


def read_model(text: str) -> Model:
    """Find the figures in the document."""
    found = {name: _figures(pattern, text) for name, pattern in _MEASURED.items()}
    metrics, spans, steps = found["load"]
    return Model(
        rates=(metrics * steps, spans * steps),
        cpu=(found["point_cpu"][0] / 1e6, found["span_cpu"][0] / 1e6),
        hubs=(found["points_through"][0] / 1e6, found["spans_through"][0] / 1e6),
        servers=(found["points_through"][1] / 1e6, found["spans_through"][1] / 1e6),
        busy=found["busy"][0] / 100,
        sizes=(found["bytes"][0], found["bytes"][1]),
        core_hour=found["prices"][0],
        gigabyte_month=found["prices"][1],
        days=found["prices"][2],
    )


def _figures(pattern: str, text: str) -> list[float]:
    found = re.search(pattern, re.sub(r"\s+", " ", text) if "|" not in pattern else text)
    if found is None:
        raise LookupError(f"docs/scale.md has nothing like {pattern}")
    return [float(each.strip(",.").replace(",", "")) for each in found.groups()]


def _round(count: float) -> str:
    return f"{count / 1e6:g} M" if count >= 1e6 else f"{count:,.0f}"


def _size(count: float) -> str:
    number, unit = (count / 1e12, "TB") if count >= 1e12 else (count / 1e9, "GB")
    return f"{number:.2g} {unit}" if number < 100 else f"{number:.0f} {unit}"


def rows(text: str) -> Iterator[str]:
    """The rows of the table."""
    model = read_model(text)
    yield from (model.row(gpus) for gpus in FLEETS)


if __name__ == "__main__":
    print("\n".join(rows(DOCUMENT.read_text())))
