"""The master's metrics. Labels are bounded: states, outcomes, resources and roles.

What is counted when it happens is a counter or a histogram; what stands at a moment is read
from the state when somebody scrapes.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from croupier.master.allocator.what_if import role_entitlements
from croupier.master.core import facts
from croupier.master.core.agents import AgentState
from croupier.master.core.frameworks import FrameworkState
from croupier.master.core.state import State
from croupier.master.log import log_fact
from croupier.model.resources import Resources, total_of
from croupier.model.scalar import SIZED
from croupier.model.task import TaskState

# Roles are made up by frameworks: more than these are left out of the metrics.
MAX_ROLES = 1000
_BYTES_PER_MILLI_MIB = 1024 * 1024 / 1000
_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)
_HOLD_SECONDS = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Counts what happens; the `Watcher` of the driver."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register with `registry`."""

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"croupier_{name}", text, labels, registry=registry)

        def seconds(name: str, text: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
            return Histogram(f"croupier_{name}_seconds", text, registry=registry, buckets=buckets)

        self._registrations = counter("agent_registrations", "Agents that registered.", "kind")
        self._removals = counter("agent_removals", "Agents that were lost.", "reason")
        self._subscriptions = counter("framework_subscriptions", "Subscriptions.", "kind")
        self._offers = counter("offers", "Offers by what became of them.", "outcome")
        self._moves = counter(
            "task_transitions", "Tasks that changed state.", "state", "source", "reason"
        )
        self._calls = counter("calls", "Calls of frameworks.", "call", "outcome")
        self._updates = counter("status_updates", "Status updates from agents.", "outcome")
        self._acks = counter("status_acks", "Acknowledgements from frameworks.", "outcome")
        self._role_changes = counter("role_changes", "Roles whose settings operators changed.")
        self._preemptions = counter("preemptions", "Preemptions: room made for who starved.")
        self._victims = counter(
            "preemption_victims", "Tasks and offers that were to make room.", "outcome"
        )
        self._passes = counter("allocations", "Slices of allocation passes.")
        self._events = counter("loop_events", "Events that the core has decided.")
        self._hold = seconds("offer_hold", "How long offers were held.", _HOLD_SECONDS)
        self._allocation = seconds("allocation", "Time of one slice of an allocation pass.")
        self._wait = seconds("allocation_wait", "Time from a change to its allocation.")
        self._lag = seconds("loop_lag", "Time that a batch of events held up the loop.")
        self._writes = seconds("registry_write", "Time of making records durable.")

    def stepped(self, seconds: float, events: int) -> None:
        """A batch was decided."""
        self._lag.observe(seconds)
        self._events.inc(events)

    def allocated(self, seconds: float, waited_s: float) -> None:
        """A slice of a pass was made."""
        self._passes.inc()
        self._allocation.observe(seconds)
        self._wait.observe(waited_s)

    def committed(self, seconds: float) -> None:
        """Records were made durable."""
        self._writes.observe(seconds)

    def happened(self, fact: facts.Fact) -> None:
        """Count and log a fact."""
        log_fact(fact)
        match fact:
            case facts.OfferMade():
                self._offers.labels("sent").inc()
            case facts.OfferEnded():
                self._offers.labels(fact.outcome).inc()
                self._hold.observe(fact.held_s)
            case facts.TaskMoved():
                self._moves.labels(fact.state.name, fact.source.name, fact.reason.name).inc()
            case facts.CallAnswered():
                self._calls.labels(fact.call, fact.outcome).inc()
            case facts.UpdateHandled(outcome):
                self._updates.labels(outcome).inc()
            case facts.UpdateAcknowledged(outcome):
                self._acks.labels(outcome).inc()
            case _:
                self._happened_seldom(fact)

    def _happened_seldom(self, fact: facts.Fact) -> None:
        match fact:
            case facts.AgentJoined():
                self._registrations.labels(fact.kind).inc()
            case facts.AgentLeft():
                self._removals.labels(fact.why).inc()
            case facts.FrameworkJoined():
                self._subscriptions.labels(fact.kind).inc()
            case facts.RoleChanged():
                self._role_changes.inc()
            case facts.PreemptionBegun():
                self._preemptions.inc()
                self._victims.labels("asked").inc(len(fact.tasks))
                self._victims.labels("rescinded").inc(len(fact.offers))
            case facts.PreemptionEnded():
                self._victims.labels(fact.outcome).inc()
            case _:
                pass


class StateCollector(Collector):
    """Reads gauges from the state at each scrape. O(agents + tasks)."""

    def __init__(
        self,
        state: State,
        queues: Callable[[], dict[str, int]],
        dropped: Callable[[], int],
        is_leader: Callable[[], bool],
        started_s: float,
    ) -> None:
        """`started_s` is seconds since the epoch."""
        self._state, self._queues, self._dropped = state, queues, dropped
        self._is_leader, self._started_s = is_leader, started_s

    def collect(self) -> Iterable[Metric]:
        """All gauges."""
        state = self._state
        yield _gauge("master_start_time_seconds", "When this master started.", self._started_s)
        yield _gauge("master_leader", "1 if this master leads.", float(self._is_leader()))
        yield _gauge("offers_outstanding", "Offers not yet answered.", len(state.offers))
        yield _gauge(
            "allocator_unsettled_agents",
            "Agents that wait to be dealt.",
            state.allocator.unsettled_agents,
        )
        yield _gauge(
            "offer_filters", "Agents refused by some framework.", state.allocator.filter_count()
        )
        yield from self._counts()
        yield self._resources()
        yield from self._roles()
        queues = GaugeMetricFamily("croupier_queue_depth", "Messages that wait.", labels=["queue"])
        for queue, depth in self._queues().items():
            queues.add_metric([queue], depth)
        yield queues
        yield CounterMetricFamily(
            "croupier_messages_dropped",
            "Messages for peers that had gone, or did not read.",
            value=self._dropped(),
        )

    def _counts(self) -> Iterator[Metric]:
        state = self._state
        agents = Tally(agent.state.value for agent in state.agents.values())
        yield _tallied("agents", "Agents by state.", agents, [s.value for s in AgentState])
        known = Tally(framework.state.value for framework in state.frameworks.values())
        names = [s.value for s in FrameworkState]
        yield _tallied("frameworks", "Frameworks by state.", known, names)
        tasks = Tally(
            task.state.name
            for framework in state.frameworks.values()
            for task in framework.tasks.values()
        )
        yield _tallied("tasks", "Tasks by state.", tasks, [s.name for s in TaskState])

    def _resources(self) -> Metric:
        state = self._state
        pooled = [agent for agent in state.agents.values() if agent.in_pool]
        gauge = GaugeMetricFamily(
            "croupier_resources",
            "Resources of the cluster; mem and disk in bytes.",
            labels=["resource", "state"],
        )
        _add_amount(gauge, total_of(agent.total for agent in pooled), "total")
        _add_amount(gauge, total_of(state.used(agent) for agent in pooled), "used")
        offered = total_of(offer.resources for offer in state.offers.values())
        _add_amount(gauge, offered, "offered")
        return gauge

    def _roles(self) -> Iterator[Metric]:
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
        allocator = self._state.allocator
        entitlements = role_entitlements(allocator.tree)
        # Roles of which an operator has set something come first: none is left out for others.
        settings = {**allocator.roles(), **{pool.role: pool.settings for pool in allocator.pools()}}
        for role, each in islice(settings.items(), MAX_ROLES):
            shares.add_metric([role], float(allocator.role_share(role)))
            due.add_metric([role], float(entitlements.get(role, 0)))
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
