"""The cluster at a glance: totals, the map of agents, the last hour."""

from __future__ import annotations

from typing import TypedDict

from croupier.api.amounts import Amount, amount_view
from croupier.api.masters import KnownMaster
from croupier.api.objects import as_object
from croupier.api.tasks import Task
from croupier.v1 import operator_pb2 as pb


class Overview(TypedDict):
    """Totals of the cluster, so far as the caller may view them.

    Attributes:
        total: scalars of all known agents, also of those that have not returned yet.
        free: what is neither used nor offered.
        agents: numbers by state.
        frameworks: numbers by state.
        tasks: numbers by state.
        agents_missing: known agents that have not registered in this term.
        failed: the number of failed tasks, of those that the master remembers.
        failures: the latest of them, the latest first.
    """

    master_id: str
    epoch: int
    total: Amount
    used: Amount
    offered: Amount
    free: dict[str, int]
    agents: dict[str, int]
    frameworks: dict[str, int]
    tasks: dict[str, int]
    offers: int
    agents_missing: int
    masters: list[KnownMaster]
    failed: int
    failures: list[Task]


class Heatmap(TypedDict):
    """The state and the load of every agent, in columns in the order of ids.

    Attributes:
        prefix: what all ids begin with.
        agents: the rest of each id.
        states: names of states.
        state: the state of each agent, by its place in `states`.
        used: what tasks use of each agent's total, in thousandths, by resource.
    """

    prefix: str
    agents: list[str]
    states: list[str]
    state: list[int]
    used: dict[str, list[int]]


class History(TypedDict):
    """The last hour, at most since the master began to lead; values are in thousandths.

    Attributes:
        times_ms: of the samples, in milliseconds since the epoch.
        used: the used part of each resource of the cluster.
        shares: dominant shares of the largest roles at the top of the tree, largest first.
        others: the sum of the shares of the other roles; None if the caller may not view it.
    """

    times_ms: list[int]
    used: dict[str, list[int]]
    shares: dict[str, list[int]]
    others: list[int] | None


def overview_view(answer: pb.GetOverviewResponse) -> Overview:
    """Return the totals of the cluster."""
    total, used = amount_view(answer.total)["milli"], amount_view(answer.used)["milli"]
    offered = amount_view(answer.offered)["milli"]
    free = {
        name: max(0, milli - used.get(name, 0) - offered.get(name, 0))
        for name, milli in total.items()
    }
    return as_object(Overview, answer, free=free)


def heatmap_view(answer: pb.GetHeatmapResponse) -> Heatmap:
    """Return the map of agents."""
    used = {each.resource: list(each.per_mille) for each in answer.used}
    return as_object(Heatmap, answer, used=used)


def history_view(answer: pb.GetHistoryResponse) -> History:
    """Return the last hour."""
    return as_object(
        History,
        answer,
        used={each.name: list(each.per_mille) for each in answer.used},
        shares={each.name: list(each.per_mille) for each in answer.shares},
        others=list(answer.others.per_mille) if answer.HasField("others") else None,
    )
