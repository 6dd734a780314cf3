"""Metrics sampled at each scrape: one table entry each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from croupier.model.scalar import SIZED

SourceT = TypeVar("SourceT")
# One value, values by label (a tuple for several labels), or None: no sample now.
Reading = float | Mapping[str, float] | Mapping[tuple[str, ...], float] | None

_BYTES_PER_MILLI_MIB = 1024 * 1024 / 1000


@dataclass(frozen=True, slots=True)
class Family(Generic[SourceT]):
    """A metric that is read from a `SourceT`.

    Attributes:
        name: without the prefix `croupier_`; of a counter also without `_total`.
        read: returns its current value, or values by label.
        is_counter: a counter; else a gauge.
    """

    name: str
    text: str
    read: Callable[[SourceT], Reading]
    labels: tuple[str, ...] = ()
    is_counter: bool = False

    def collect(self, source: SourceT) -> Iterator[Metric]:
        """Read the metric from `source`."""
        reading = self.read(source)
        if reading is None:
            return
        cls = CounterMetricFamily if self.is_counter else GaugeMetricFamily
        family = cls(f"croupier_{self.name}", self.text, labels=self.labels)
        values = reading if isinstance(reading, Mapping) else {(): reading}
        for key, value in values.items():
            family.add_metric([key] if isinstance(key, str) else key, value)
        yield family


def collect_all(families: Iterable[Family[SourceT]], source: SourceT) -> Iterator[Metric]:
    """Read each of `families` from `source`."""
    for family in families:
        yield from family.collect(source)


class FamilyCollector(Collector, Generic[SourceT]):
    """Reads a table of metrics at each scrape."""

    def __init__(
        self, families: Sequence[Family[SourceT]], source: Callable[[], SourceT | None]
    ) -> None:
        """Read `families` from what `source` returns; nothing while that is None."""
        self._families, self._source = families, source

    def collect(self) -> Iterator[Metric]:
        """Read all metrics."""
        source = self._source()
        if source is not None:
            yield from collect_all(self._families, source)


def exported_amount(resource: str, milli: int) -> float:
    """Return an amount of a resource in its base unit: bytes for mem and disk."""
    return milli * _BYTES_PER_MILLI_MIB if resource in SIZED else milli / 1000
