"""The master's metrics. Labels are bounded: states, outcomes, resources and roles.

What is counted when it happens is a counter or a histogram; what stands at a moment is in
`gauges`. Counts go on from one term of this process to the next.
"""

from __future__ import annotations

import time
from zlib import crc32

from prometheus_client import CollectorRegistry, Counter, Histogram

from croupier.master.core import facts
from croupier.master.log import log_fact
from croupier.model.log_throttle import Repeats

# Roles are made up by frameworks: more than these are left out of the metrics.
MAX_ROLES = 1000
# Of refusals of agents so many are logged in so many seconds.
REFUSALS_AT_ONCE, REFUSED_AGAIN_S = 16, 60.0
# Of one agent's health one change each way is logged in so many seconds.
HEALTH_AGAIN_S = 1.0
_BYTES_PER_MILLI_MIB = 1024 * 1024 / 1000
_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)
_HOLD_SECONDS = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Counts what happens; the `Observer` of the driver."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register with `registry`."""

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"croupier_{name}", text, labels, registry=registry)

        def seconds(name: str, text: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
            return Histogram(f"croupier_{name}_seconds", text, registry=registry, buckets=buckets)

        self._registrations = counter("agent_registrations", "Agents that registered.", "kind")
        self._removals = counter("agent_removals", "Agents that were lost.", "reason")
        self._refused = counter(
            "agents_refused", "Registrations refused for what the agent offers or has heard."
        )
        self._refusals = Repeats(REFUSED_AGAIN_S)
        self._health = Repeats(HEALTH_AGAIN_S)
        self._operations = counter(
            "agent_operations", "What operators had done with agents.", "action"
        )
        self._drained = counter("agents_drained", "Agents of which a drain is done.")
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
        self._term_ends = counter("master_term_ends", "Terms that ended here.", "why")
        self._hold = seconds("offer_hold", "How long offers were held.", _HOLD_SECONDS)
        self._allocation = seconds("allocation", "Time of one slice of an allocation pass.")
        self._wait = seconds("allocation_wait", "Time from a change to its allocation.")
        self._batch = seconds("batch", "Time from the first decision of a batch to its last.")
        self._writes = seconds("registry_write", "Time of making records durable.")

    def stepped(self, seconds: float, events: int) -> None:
        """A batch was decided."""
        self._batch.observe(seconds)
        self._events.inc(events)

    def allocated(self, seconds: float, waited_s: float) -> None:
        """A slice of a pass was made."""
        self._passes.inc()
        self._allocation.observe(seconds)
        self._wait.observe(waited_s)

    def committed(self, seconds: float) -> None:
        """Records were made durable."""
        self._writes.observe(seconds)

    def term_ended(self, why: str) -> None:
        """A term of this process is over; `why` is one of few words."""
        self._term_ends.labels(why).inc()

    def happened(self, fact: facts.Fact) -> None:
        """Count and log a fact."""
        if self._is_news(fact):
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

    def _is_news(self, fact: facts.Fact) -> bool:
        """Return whether to log a fact; what a peer can cause in masses is logged now and then."""
        match fact:
            case facts.AgentRefused():
                # Agents ask again, and anyone can make up hostnames.
                group = crc32(fact.hostname.encode(errors="replace")) % REFUSALS_AT_ONCE
                return self._refusals.is_due(group, time.monotonic())
            case facts.AgentUnhealthy() | facts.AgentHealthy():
                key = (type(fact), fact.agent_id)
                return self._health.is_due(key, time.monotonic())
            case _:
                return True

    def _happened_seldom(self, fact: facts.Fact) -> None:
        match fact:
            case facts.AgentJoined():
                self._registrations.labels(fact.kind).inc()
            case facts.AgentRefused():
                self._refused.inc()
            case facts.AgentLeft():
                self._removals.labels(fact.why).inc()
            case facts.AgentOperated():
                self._operations.labels(fact.action).inc()
            case facts.AgentDrained():
                self._drained.inc()
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
