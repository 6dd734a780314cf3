"""What stands at a moment, read from the state when somebody scrapes.

A follower has no state: it says that it follows, and nothing of the cluster.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from croupier.master.core.agents import AgentState
from croupier.master.core.frameworks import FrameworkState
from croupier.master.core.state import State
from croupier.master.leadership import Leadership
from croupier.master.recovery import agents_missing, tasks_undecided
from croupier.master.term import Term
from croupier.model.resources import Resources, total_of
from croupier.model.scalar import SIZED
from croupier.model.task import TaskState

# Roles are made up by frameworks: more than these are left out of the metrics.
MAX_ROLES = 1000
_BYTES_PER_MILLI_MIB = 1024 * 1024 / 1000


class StateCollector(Collector):
    """Reads gauges from the state at each scrape. O(agents + tasks)."""

    def __init__(self, leadership: Leadership, started_s: float) -> None:
        """`started_s` is seconds since the epoch."""
        self._leadership, self._started_s = leadership, started_s

    def collect(self) -> Iterable[Metric]:
        """All gauges."""
        leadership = self._leadership
        yield _gauge("master_start_time_seconds", "When this master started.", self._started_s)
        yield _gauge("master_leader", "1 if this master leads.", float(leadership.is_leader))
        yield CounterMetricFamily(
            "croupier_master_terms", "Terms in which this master has led.", value=leadership.terms
        )
        if leadership.current is not None:
            yield from _of_term(leadership.current)
            yield from _of_state(leadership.current.driver.state)


def _of_term(term: Term) -> Iterator[Metric]:
    yield _gauge("master_epoch", "How many terms the cluster has had, with this one.", term.epoch)
    commits = term.lineage.position().commit
    yield _gauge("master_store_commits", "Commits in the life of the cluster's store.", commits)
    yield _gauge("master_term_begin_seconds", "How long this term took to begin.", term.began_s)
    recovery = term.recovery
    if recovery is not None:
        yield _gauge(
            "recovery_agents", "Agents in the registry when this term began.", recovery.agents
        )
        yield _gauge("recovery_tasks", "Tasks of these in the registry, likewise.", recovery.tasks)
        if recovery.complete_s is not None:
            yield _gauge(
                "recovery_seconds",
                "From the beginning of this term until no agent was missing any more.",
                recovery.complete_s,
            )
    queues = GaugeMetricFamily("croupier_queue_depth", "Messages that wait.", labels=["queue"])
    queues.add_metric(["inbox"], len(term.driver.inbox))
    queues.add_metric(["outboxes"], term.sessions.queued())
    yield queues
    yield CounterMetricFamily(
        "croupier_messages_dropped",
        "Messages for peers that had gone, or did not read.",
        value=term.sessions.dropped,
    )


def _of_state(state: State) -> Iterator[Metric]:
    yield _gauge("offers_outstanding", "Offers not yet answered.", len(state.offers))
    yield _gauge(
        "allocator_unsettled_agents",
        "Agents that wait to be dealt.",
        state.allocator.dirty_agents,
    )
    yield _gauge(
        "offer_filters", "Agents refused by some framework.", state.allocator.filter_count()
    )
    yield _gauge(
        "agents_missing",
        "Agents in the registry that have not come back in this term, nor were given up.",
        agents_missing(state),
    )
    yield _gauge(
        "tasks_undecided",
        "Tasks of missing agents: how they stand is not known.",
        tasks_undecided(state),
    )
    yield _gauge(
        "tasks_unacknowledged",
        "Tasks that have ended, whose frameworks have not acknowledged it.",
        sum(framework.ended for framework in state.frameworks.values()),
    )
    yield from _counts(state)
    yield _resources(state)
    yield from _roles(state)


def _counts(state: State) -> Iterator[Metric]:
    agents = Tally(agent.state.value for agent in state.agents.values())
    yield _tallied("agents", "Agents by state.", agents, [s.value for s in AgentState])
    yield from _withheld(state)
    known = Tally(framework.state.value for framework in state.frameworks.values())
    names = [s.value for s in FrameworkState]
    yield _tallied("frameworks", "Frameworks by state.", known, names)
    tasks = Tally(
        task.state.name
        for framework in state.frameworks.values()
        for task in framework.tasks.values()
    )
    yield _tallied("tasks", "Tasks by state.", tasks, [s.name for s in TaskState])


def _withheld(state: State) -> Iterator[Metric]:
    held: Tally[str] = Tally()
    left = 0
    for agent in state.agents.values():
        held["deactivated"] += agent.deactivated
        held["unhealthy"] += bool(agent.problems)
        if agent.drain is not None:
            tasks = sum(not task.state.is_terminal for task in agent.tasks.values())
            held["draining" if tasks else "drained"] += 1
            left += tasks
    gauge = GaugeMetricFamily(
        "croupier_agents_withheld", "Agents withheld from allocation.", labels=["why"]
    )
    for why in ("draining", "drained", "deactivated", "unhealthy"):
        gauge.add_metric([why], held[why])
    yield gauge
    yield _gauge("drain_tasks_left", "Tasks that are left on agents that are drained.", left)


def _resources(state: State) -> Metric:
    pooled = [agent for agent in state.agents.values() if agent.in_pool]
    missing = [agent for agent in state.agents.values() if agent.is_recovering]
    gauge = GaugeMetricFamily(
        "croupier_resources",
        "Resources of the cluster; mem and disk in bytes. missing is the capacity of agents that"
        " have not returned to this master, undecided what their tasks hold; both count in shares"
        " and limits, and neither is part of total, used or offered.",
        labels=["resource", "state"],
    )
    _add_amount(gauge, total_of(agent.total for agent in pooled), "total")
    _add_amount(gauge, total_of(state.used(agent) for agent in pooled), "used")
    offered = total_of(offer.resources for offer in state.offers.values())
    _add_amount(gauge, offered, "offered")
    _add_amount(gauge, total_of(agent.total for agent in missing), "missing")
    _add_amount(gauge, total_of(state.used(agent) for agent in missing), "undecided")
    return gauge


def _roles(state: State) -> Iterator[Metric]:
    shares = GaugeMetricFamily(
        "croupier_role_dominant_share",
        "Dominant share of the cluster, offered and used.",
        labels=["role"],
    )
    weights = GaugeMetricFamily("croupier_role_weight", "Weight of a role.", labels=["role"])
    due = GaugeMetricFamily(
        "croupier_role_entitlement",
        "Dominant share that is a role's due; 0 while nobody in it wants or holds any.",
        labels=["role"],
    )
    guarantees = GaugeMetricFamily(
        "croupier_role_guarantee",
        "What a role is guaranteed; mem and disk in bytes.",
        labels=["role", "resource"],
    )
    limits = GaugeMetricFamily(
        "croupier_role_limit",
        "What a role never holds more than; mem and disk in bytes.",
        labels=["role", "resource"],
    )
    allocator = state.allocator
    # Roles of which an operator has set something come first: none is left out for others.
    known = allocator.roles()
    others = ((pool.role, pool.settings) for pool in allocator.pools() if pool.role not in known)
    for role, each in islice(chain(known.items(), others), MAX_ROLES):
        shares.add_metric([role], float(allocator.role_share(role)))
        due.add_metric([role], float(allocator.role_entitlement(role)))
        weights.add_metric([role], each.weight / 1000)
        _add_amounts(guarantees, each.guarantee, role)
        _add_amounts(limits, each.limit, role)
    yield from (shares, due, weights, guarantees, limits)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"croupier_{name}", text, value=value)


def _tallied(name: str, text: str, tally: Tally[str], states: list[str]) -> Metric:
    gauge = GaugeMetricFamily(f"croupier_{name}", text, labels=["state"])
    for state in states:
        gauge.add_metric([state], tally[state])
    return gauge


def _add_amount(gauge: GaugeMetricFamily, amount: Resources, state: str) -> None:
    for name, milli in amount.scalars.items():
        gauge.add_metric([name, state], _value(name, milli))


def _add_amounts(gauge: GaugeMetricFamily, amounts: Mapping[str, int], role: str) -> None:
    for name, milli in amounts.items():
        gauge.add_metric([role, name], _value(name, milli))


def _value(name: str, milli: int) -> float:
    return milli * _BYTES_PER_MILLI_MIB if name in SIZED else milli / 1000
