"""Metrics that are counted when something happens. Present values are in `gauges`.

A metric that counts facts is one entry of `FACT_COUNTERS`. Labels are bounded: states, outcomes
and reasons. Counters continue over all terms of this process.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from croupier.master.core import facts
from croupier.master.log import FactThrottle, log_fact
from croupier.master.metrics.task_times import TaskTimes
from croupier.master.tracing.tracing import Tracing
from croupier.model.ids import FrameworkId, TaskId
from croupier.process.metric_families import Family, FamilyCollector

_SECONDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
)  # fmt: skip
_HOLD_SECONDS = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True, slots=True)
class FactCounter:
    """A counter of one kind of fact.

    Attributes:
        name: without the prefix `croupier_` and without `_total`.
        fields: fields of the fact, one for each label; None if they are named as the labels.
    """

    name: str
    text: str
    fact: type[facts.Fact]
    labels: tuple[str, ...] = ()
    fields: tuple[str, ...] | None = None

    def label_values(self, fact: facts.Fact) -> tuple[object, ...]:
        """Return the values of the labels for `fact`; of an enum, its name is the label."""
        return tuple([getattr(fact, field) for field in self.fields or self.labels])


FACT_COUNTERS: Final = (
    FactCounter(
        "agent_registrations",
        "Agent registrations by kind: new, again or returned.",
        facts.AgentJoined,
        ("kind",),
    ),
    FactCounter(
        "agent_removals",
        "Agents that left: suspected, disconnected, unreachable, stopped or gone.",
        facts.AgentLeft,
        ("reason",),
        ("why",),
    ),
    FactCounter(
        "agents_refused",
        "Agent registrations refused, for their resources or for their cluster and epoch.",
        facts.AgentRefused,
    ),
    FactCounter(
        "unproven_registrations",
        "Registrations of agents that listed live tasks without proof of launch.",
        facts.TasksUnproven,
    ),
    FactCounter(
        "agent_operations", "Operations on agents by operators.", facts.AgentOperated, ("action",)
    ),
    FactCounter("agents_drained", "Agent drains that were completed.", facts.AgentDrained),
    FactCounter(
        "framework_subscriptions",
        "Framework subscriptions by kind: new, again or returned.",
        facts.FrameworkJoined,
        ("kind",),
    ),
    FactCounter(
        "offers",
        "Offers by outcome: sent, accepted, declined, rescinded or expired.",
        facts.OfferEnded,
        ("outcome",),
    ),
    FactCounter(
        "back_offs",
        "Times that a framework or its principal left offers unanswered, and backs off.",
        facts.OffersUnanswered,
    ),
    FactCounter(
        "task_transitions",
        "Task state transitions.",
        facts.TaskMoved,
        ("state", "source", "reason"),
    ),
    FactCounter("calls", "Framework calls by outcome.", facts.CallAnswered, ("call", "outcome")),
    FactCounter("status_updates", "Status updates from agents.", facts.UpdateHandled, ("outcome",)),
    FactCounter(
        "executor_messages",
        "Messages between frameworks and executors by direction and outcome: sent or dropped.",
        facts.ExecutorMessaged,
        ("direction", "outcome"),
    ),
    FactCounter(
        "status_acks",
        "Acknowledgements of status updates from frameworks.",
        facts.UpdateAcknowledged,
        ("outcome",),
    ),
    FactCounter(
        "line_tasks",
        "Submitted tasks by what became of them at an agent's line: lined_up, recalled, returned or"
        " started.",
        facts.TaskLined,
        ("outcome",),
    ),
    FactCounter("holds_made", "Holds that were made.", facts.HoldMade),
    FactCounter(
        "holds_ended",
        "Holds that ended: released, expired, preempted, owner_removed, agent_gone or no_room.",
        facts.HoldEnded,
        ("reason",),
        ("why",),
    ),
    FactCounter("reservations_made", "Reservations that were made.", facts.ReservationMade),
    FactCounter(
        "reservation_changes",
        "Changes of reservations: announced, began, agents (other agents were chosen), over or"
        " deleted.",
        facts.ReservationChanged,
        ("change",),
    ),
    FactCounter("role_changes", "Changes of role settings by operators.", facts.RoleChanged),
    FactCounter(
        "preemptions", "Preemptions on behalf of starved frameworks.", facts.PreemptionBegun
    ),
    FactCounter(
        "preemption_victims",
        "Preempted tasks and offers by outcome: asked, yielded, killed, spared, requeued or"
        " rescinded.",
        facts.PreemptionEnded,
        ("outcome",),
    ),
)

# Values of a label that are exported as 0 before their first event: else a rate misses it.
_LABEL_VALUES: Final = {
    "agent_removals": ("suspected", "disconnected", "unreachable", "stopped", "gone"),
    "offers": ("sent", "accepted", "declined", "rescinded", "expired"),
    "holds_ended": (
        *("released", "expired", "preempted", "owner_removed", "agent_gone", "no_room"),
    ),
    "preemption_victims": ("asked", "yielded", "killed", "spared", "requeued", "rescinded"),
}
_Counts = Mapping[str, Mapping[tuple[object, ...], int]]
_TERM_ENDS: Final = ("failed_over", "store_unavailable")


class Metrics:
    """Counts facts and measures the driver: its `Observer`."""

    def __init__(self, registry: CollectorRegistry) -> None:

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"croupier_{name}", text, labels, registry=registry)

        def seconds(name: str, text: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
            return Histogram(f"croupier_{name}_seconds", text, registry=registry, buckets=buckets)

        self._throttle = FactThrottle()
        self._entries = {entry.fact: entry for entry in FACT_COUNTERS}
        # By values of labels: a counter of the library takes a lock and costs ten times as much.
        self._counts: dict[str, dict[tuple[object, ...], int]] = {
            entry.name: dict.fromkeys(
                [(value,) for value in _LABEL_VALUES.get(entry.name, ())] if entry.labels else [()],
                0,
            )
            for entry in FACT_COUNTERS
        }
        families: list[Family[_Counts]] = [
            Family(
                entry.name, entry.text, partial(_reading, entry.name), entry.labels, is_counter=True
            )
            for entry in FACT_COUNTERS
        ]
        registry.register(FamilyCollector(families, lambda: self._counts))
        self._passes = counter("allocations", "Slices of allocation passes.")
        self._events = counter("loop_events", "Events that the core decided.")
        self._term_ends = counter("master_term_ends", "Terms that ended on this master.", "why")
        for why in _TERM_ENDS:
            self._term_ends.labels(why)
        self._hold = seconds("offer_hold", "Time that frameworks held offers.", _HOLD_SECONDS)
        self._allocation = seconds("allocation", "Time of one slice of an allocation pass.")
        self._wait = seconds("allocation_wait", "Time from a change to its allocation.")
        self._batch = seconds("batch", "Time to decide a batch of events.")
        self._writes = seconds("registry_write", "Time to make records durable.")
        # Traces of tasks, if there is a collector for them.
        self.tracing: Tracing | None = None
        self._task_times = TaskTimes()
        registry.register(self._task_times)

    def stepped(self, seconds: float, events: int) -> None:
        """Note that a batch was decided."""
        self._batch.observe(seconds)
        self._events.inc(events)

    def allocated(self, seconds: float, waited_s: float) -> None:
        """Note a slice of an allocation pass."""
        self._passes.inc()
        self._allocation.observe(seconds)
        self._wait.observe(waited_s)

    def committed(self, seconds: float) -> None:
        """Note that records were made durable."""
        self._writes.observe(seconds)

    def term_ended(self, why: str) -> None:
        """Count a term of this process that ended; `why` has few values."""
        self._task_times.clear()
        if self.tracing is not None:
            self.tracing.spans.clear()
        self._term_ends.labels(why).inc()

    def happened(self, fact: facts.Fact) -> None:
        """Count and log a fact."""
        log_fact(fact, self._throttle)
        if self.tracing is not None:
            self.tracing.spans.happened(fact, time.time_ns())
        entry = self._entries.get(type(fact))
        if entry is not None:
            self._count(entry.name, entry.label_values(fact))
        match fact:
            case facts.TaskMoved() | facts.FrameworkLeft():
                self._task_times.happened(fact, time.monotonic())
            case facts.OfferMade():
                self._count("offers", ("sent",))
            case facts.OfferEnded():
                self._hold.observe(fact.held_s)
            case facts.PreemptionBegun():
                self._count("preemption_victims", ("asked",), len(fact.tasks))
                self._count("preemption_victims", ("rescinded",), len(fact.offers))

    def acknowledged(self, framework_id: FrameworkId, task_id: TaskId) -> None:
        """Note that the terminal status of a task was acknowledged."""
        self._task_times.acknowledged(framework_id, task_id, time.monotonic())
        if self.tracing is not None:
            self.tracing.spans.acknowledged(framework_id, task_id, time.time_ns())

    def _count(self, name: str, values: tuple[object, ...], number: int = 1) -> None:
        """Count for these values of the labels, which are few."""
        counts = self._counts[name]
        counts[values] = counts.get(values, 0) + number


def _reading(name: str, counts: _Counts) -> Mapping[tuple[str, ...], float]:
    """Return the counts of one counter by the texts of its labels."""
    return {
        tuple(value.name if isinstance(value, Enum) else str(value) for value in values): number
        for values, number in counts[name].items()
    }
