"""Metrics of single frameworks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from croupier.master.allocator.queries import Rest
from croupier.master.core.frameworks import Framework
from croupier.master.core.state import State
from croupier.master.metrics.series.top_names import OTHER, Score, TopNames
from croupier.model.ids import FrameworkId
from croupier.process.metric_families import Family

LABELS: Final = ("framework", "name")


@dataclass(frozen=True, slots=True)
class FrameworkSeries:
    """The frameworks that are exported at one scrape.

    Attributes:
        rest: of all other frameworks together.
    """

    state: State
    frameworks: tuple[Framework, ...]
    rest: Rest


def framework_series(state: State, names: TopNames, now: float) -> FrameworkSeries:
    """Choose the frameworks to export at `now`, in seconds on the master's clock."""
    queries = state.allocator.queries

    def scores() -> Mapping[str, Score]:
        # One that waits counts as if it held an equal share: it may hold nothing.
        equal = 1 / max(len(state.frameworks), 1)
        return {
            framework_id: Score(max(share, equal if is_waiting else 0.0))
            for framework_id, share, is_waiting in queries.rough_framework_shares()
        }

    names.update(scores, now)
    known = (state.frameworks.get(FrameworkId(name)) for name in names.names)
    chosen = tuple(framework for framework in known if framework is not None)
    rest = queries.rest_of_frameworks([framework.framework_id for framework in chosen])
    return FrameworkSeries(state, chosen, rest)


def _by_framework(
    series: FrameworkSeries, value_of: Callable[[Framework], float], rest: float
) -> dict[tuple[str, ...], float]:
    values: dict[tuple[str, ...], float] = {
        (framework.framework_id, framework.name): value_of(framework)
        for framework in series.frameworks
    }
    return values | {(OTHER, OTHER): rest}


def _tasks(series: FrameworkSeries) -> dict[tuple[str, ...], float]:
    everything = sum(map(_live, series.state.frameworks.values()))
    return _by_framework(series, _live, everything - sum(map(_live, series.frameworks)))


def _live(framework: Framework) -> int:
    return len(framework.tasks) - framework.ended


FRAMEWORKS: Final[tuple[Family[FrameworkSeries], ...]] = (
    Family(
        "framework_dominant_share",
        "Dominant share of a framework, offered and used; of the framework other, of all"
        " frameworks that are not exported.",
        lambda series: _by_framework(
            series,
            lambda each: float(series.state.allocator.queries.share(each.framework_id)),
            series.rest.share,
        ),
        LABELS,
    ),
    Family(
        "framework_entitlement",
        "Dominant share that a framework is entitled to; 0 while it has neither demand nor"
        " resources.",
        lambda series: _by_framework(
            series,
            lambda each: float(series.state.allocator.queries.entitlement(each.framework_id)),
            series.rest.entitlement,
        ),
        LABELS,
    ),
    Family(
        "framework_pending",
        "Units of demand and queued tasks of a framework that could be dealt and wait for"
        " resources; a demand without a count is 1.",
        lambda series: _by_framework(
            series,
            lambda each: series.state.allocator.queries.pending_units(each.framework_id),
            series.rest.pending,
        ),
        LABELS,
    ),
    Family(
        "framework_tasks",
        "Tasks of a framework that have not ended.",
        _tasks,
        LABELS,
    ),
)
