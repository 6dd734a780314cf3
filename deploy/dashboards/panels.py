"""What a table of panels is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

RATE: Final = "[$__rate_interval]"


@dataclass(frozen=True, slots=True)
class Panel:
    """One graph.

    Attributes:
        queries: PromQL by legend; `{{label}}` in a legend is the value of a label.
        unit: of Grafana, such as `s`, `bytes` or `percentunit`.
        width: in 24ths of the dashboard.
        top: the highest value of the axis.
    """

    title: str
    text: str
    queries: dict[str, str]
    unit: str = "short"
    kind: Literal["timeseries", "stat", "table"] = "timeseries"
    width: int = 12
    is_stacked: bool = False
    top: float | None = None

    @property
    def height(self) -> int:
        """In rows of Grafana."""
        return 4 if self.kind == "stat" else 8


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard; `name` is that of its file."""

    name: str
    title: str
    panels: tuple[Panel, ...]


def stat(title: str, text: str, query: str, unit: str = "short") -> Panel:
    """Return a panel with one number."""
    return Panel(title, text, {title: query}, unit, "stat", 4)


def quantiles(metric: str, *labels: str, which: tuple[float, ...] = (0.5, 0.99)) -> dict[str, str]:
    """Return queries for quantiles of a histogram, by labels."""
    by = ", ".join(("le", *labels))
    legend = " ".join(f"{{{{{label}}}}}" for label in labels)
    rate = f"sum by ({by}) (rate({metric}_bucket{RATE}))"
    return {
        f"{legend} p{quantile * 100:g}".strip(): f"histogram_quantile({quantile}, {rate})"
        for quantile in which
    }


def rates(metric: str, *labels: str) -> dict[str, str]:
    """Return a query for the rate of a counter, by labels."""
    by = f" by ({', '.join(labels)})" if labels else ""
    legend = " ".join(f"{{{{{label}}}}}" for label in labels) or "all"
    return {legend: f"sum{by} (rate({metric}{RATE}))"}


def amounts(resource: str) -> dict[str, str]:
    """Return queries for the used, offered, held and free amount of a resource."""

    def amount(state: str) -> str:
        return f'sum(croupier_resources{{resource="{resource}",state="{state}"}})'

    parts = {state: amount(state) for state in ("used", "offered", "held")}
    return {**parts, "free": " - ".join([amount("total"), *parts.values()])}
