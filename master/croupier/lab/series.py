"""Time series: values sampled over virtual time at fixed intervals."""

from __future__ import annotations

from collections.abc import Callable

from croupier.sim.kernel import Kernel

Points = list[tuple[float, float]]


class Series:
    """Curves by name; each has one point per interval.

    Attributes:
        curves: (virtual seconds, value), in order of time.
    """

    def __init__(self, kernel: Kernel, interval_s: float) -> None:
        """Sample the watched values each `interval_s`."""
        self.curves: dict[str, Points] = {}
        self._kernel = kernel
        self._watched: dict[str, Callable[[], float]] = {}
        kernel.sample(interval_s, self._take)

    def watch(self, name: str, value: Callable[[], float]) -> None:
        """Sample `value` from now on."""
        self._watched[name] = value
        self.curves[name] = []

    def mean(self, name: str, start: float = 0.0, end: float = float("inf")) -> float:
        """Return the mean of the samples at `start` <= time < `end`; 0 without samples."""
        values = [value for at, value in self.curves[name] if start <= at < end]
        return sum(values) / len(values) if values else 0.0

    def _take(self) -> None:
        for name, value in self._watched.items():
            self.curves[name].append((self._kernel.now, value()))
