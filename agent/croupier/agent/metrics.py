"""The agent's metrics. Labels are bounded: states, reasons, outcomes, steps and resources."""

from __future__ import annotations

import logging
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from croupier.agent.core.effects import (
    Acknowledged,
    Adopt,
    CheckHealth,
    Checkpoint,
    Effect,
    Forget,
    ForgetRun,
    HealthChanged,
    Moved,
    Outdated,
    RefuseLaunch,
    SendRegister,
    SendUpdates,
    Signal,
    Spawn,
)
from croupier.agent.core.events import (
    Adopted,
    Event,
    Exited,
    LaunchFailed,
    NotStarted,
    Started,
    Vanished,
)
from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import Key
from croupier.agent.janitor import Janitor
from croupier.model.clock import Clock
from croupier.model.health import PARTS, Problem
from croupier.model.ranges import count
from croupier.model.resources import Resources
from croupier.model.scalar import SIZED
from croupier.model.task import TaskState, TaskStatus
from croupier.process.logging import get_logger

_log = get_logger("croupier.agent")

_BYTES_PER_MILLI_MIB = 1024 * 1024 / 1000
# Answers to launches and adoptions.
Answer = Started | LaunchFailed | NotStarted | Adopted | Exited | Vanished
_ANSWERS = (Started, LaunchFailed, NotStarted, Adopted, Exited, Vanished)
_OUTCOMES: dict[type[Answer], str] = {
    Adopted: "running",
    Exited: "ended",
    LaunchFailed: "failed",
    Vanished: "vanished",
}
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Metrics:
    """Counts and logs what the reactor and the driver do."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        """Register with `registry`."""
        self._clock = clock
        self._ordered_at: dict[Key, float] = {}
        self._adopting: dict[Key, str] = {}

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"croupier_{name}", text, labels, registry=registry)

        def seconds(name: str, text: str) -> Histogram:
            return Histogram(f"croupier_{name}_seconds", text, registry=registry, buckets=_SECONDS)

        self._moves = counter(
            "agent_task_transitions", "Tasks that changed state.", "state", "reason"
        )
        self._updates = counter("agent_status_updates", "Status updates.", "outcome")
        self._failures = counter(
            "agent_container_errors", "Launches that failed, by the step that did.", "step"
        )
        self._outdated = counter(
            "agent_outdated_orders", "Kills by older runs of a framework, that were refused."
        )
        self._refused = counter(
            "agent_launches_refused", "Launches refused since the agent was unhealthy."
        )
        self._recovered = counter(
            "agent_recovered_tasks",
            "Tasks of an earlier life of the agent, by what became of them.",
            "outcome",
        )
        self._lost = counter("agent_recovery_errors", "Records that were damaged and left out.")
        self._written = counter("agent_checkpoint_bytes", "Bytes of records made durable.")
        self._commit = seconds("agent_checkpoint_commit", "Time for records to become durable.")
        self._shim = Gauge(
            "croupier_agent_shim",
            "1 for the kind of shim that tasks run under.",
            ["kind"],
            registry=registry,
        )
        self._launch = seconds("agent_launch", "Time from the order to the running process.")
        self._turn = seconds(
            "agent_turn", "Time of a turn of the driver: a batch and what follows."
        )
        for outcome in ("sent", "resent", "acknowledged"):
            self._updates.labels(outcome)
        for step in ("user", "sandbox", "exec"):
            self._failures.labels(step)
        for outcome in _OUTCOMES.values():
            self._recovered.labels(outcome)

    def decided(self, event: Event, _effects: Sequence[Effect], /) -> None:
        """Measure launches and count adoptions by their answers."""
        if not isinstance(event, _ANSWERS):
            return
        ordered_at = self._ordered_at.pop(event.key, None)
        if ordered_at is not None and isinstance(event, Started):
            self._launch.observe(self._clock.now() - ordered_at)
        run = self._adopting.pop(event.key, None)
        if run is not None:
            self._count_adoption(event, run)

    def performed(self, effect: Effect) -> None:
        """Count and log an effect."""
        match effect:
            case Moved(status):
                self._count_move(status)
            case SendUpdates(_, statuses, again):
                self._updates.labels("resent" if again else "sent").inc(len(statuses))
            case Acknowledged(count):
                self._updates.labels("acknowledged").inc(count)
            case Spawn(key):
                self._ordered_at[key] = self._clock.now()
            case Adopt(key, run):
                self._adopting[key] = run
            case RefuseLaunch():
                self._refused.inc()
            case Outdated(key, framework_epoch):
                self._count_outdated(key, framework_epoch)
            case HealthChanged(_, problems):
                _log_health(problems)
            case Checkpoint() | SendRegister() | CheckHealth() | Signal() | ForgetRun() | Forget():
                pass
            case _:
                assert_never(effect)

    def committed(self, seconds: float, size: int) -> None:
        """Count a commit of `size` bytes of records."""
        self._commit.observe(seconds)
        self._written.inc(size)

    def turned(self, seconds: float) -> None:
        """Count a turn of the driver, less its commit."""
        self._turn.observe(seconds)

    def launch_failed(self, step: str) -> None:
        """Count a launch that failed at `step`: user, sandbox or exec."""
        self._failures.labels(step).inc()

    def record_lost(self) -> None:
        """A record of an earlier life was damaged and left out."""
        self._lost.inc()

    def shim_is(self, kind: str) -> None:
        """Export the kind of shim that tasks run under."""
        self._shim.labels(kind).set(1)

    def _count_move(self, status: TaskStatus) -> None:
        self._moves.labels(status.state.name, status.reason.name).inc()
        is_news = status.state.is_terminal or status.state is TaskState.KILLING
        _log.log(logging.INFO if is_news else logging.DEBUG, "task_moved", **_fields(status))

    def _count_adoption(self, answer: Answer, run: str) -> None:
        outcome = _OUTCOMES[type(answer)]
        if isinstance(answer, Vanished) and answer.never_started:
            outcome = "unstarted"
        self._recovered.labels(outcome).inc()
        framework_id, task_id = answer.key
        _log.info(
            "task_found", framework_id=framework_id, task_id=task_id, run=run, outcome=outcome
        )

    def _count_outdated(self, key: Key, framework_epoch: int) -> None:
        self._outdated.inc()
        _log.warning(
            "order_refused",
            framework_id=key[0],
            task_id=key[1],
            framework_epoch=framework_epoch,
        )


class StateCollector(Collector):
    """Reads gauges from the state at each scrape. O(tasks)."""

    def __init__(
        self,
        state: AgentState,
        is_registered: Callable[[], bool],
        janitor: Janitor,
        started_s: float,
    ) -> None:
        """`started_s` is seconds since the epoch."""
        self._state, self._is_registered, self._started_s = state, is_registered, started_s
        self._janitor = janitor

    def collect(self) -> Iterable[Metric]:
        """All gauges."""
        yield GaugeMetricFamily(
            "croupier_agent_registered",
            "1 if a master has taken the agent in.",
            value=float(self._is_registered()),
        )
        yield GaugeMetricFamily(
            "croupier_agent_start_time_seconds", "When this agent started.", value=self._started_s
        )
        yield GaugeMetricFamily(
            "croupier_agent_unacknowledged_updates",
            "Status updates that wait for an acknowledgement.",
            value=self._state.unacknowledged(),
        )
        yield GaugeMetricFamily(
            "croupier_agent_sandboxes_kept",
            "Sandboxes of tasks that are no more.",
            value=len(self._janitor),
        )
        yield GaugeMetricFamily(
            "croupier_agent_sandbox_keep_seconds",
            "For how long one is kept, as full as the disk is.",
            value=self._janitor.allowed_s,
        )
        yield CounterMetricFamily(
            "croupier_agent_sandboxes_removed", "Sandboxes removed.", value=self._janitor.removed
        )
        yield from self._health()
        yield self._resources()
        yield self._tasks()

    def _health(self) -> Iterable[Metric]:
        health = self._state.health
        yield GaugeMetricFamily(
            "croupier_agent_healthy",
            "1 if the agent takes launches, 0 while it has a problem.",
            value=float(health.is_healthy),
        )
        gauge = GaugeMetricFamily(
            "croupier_agent_problem",
            "1 for a part of the agent that keeps it from launching tasks.",
            labels=["part"],
        )
        failing = {problem.part for problem in health.problems}
        for part in PARTS:
            gauge.add_metric([part], float(part in failing))
        yield gauge

    def _resources(self) -> Metric:
        gauge = GaugeMetricFamily(
            "croupier_agent_resources",
            "Resources of the agent; mem and disk in bytes, ranges as how many numbers.",
            labels=["resource", "state"],
        )
        total, used = self._state.total, self._state.total - self._state.free
        for name in total.scalars:
            gauge.add_metric([name, "total"], _amount(total, name))
            gauge.add_metric([name, "used"], _amount(used, name))
        for name, ranges in total.ranges.items():
            gauge.add_metric([name, "total"], count(ranges))
            gauge.add_metric([name, "used"], count(used.ranges.get(name, ())))
        return gauge

    def _tasks(self) -> Metric:
        gauge = GaugeMetricFamily(
            "croupier_agent_tasks", "Tasks that are not settled, by state.", labels=["state"]
        )
        tally = Tally(task.state for task in self._state.tasks.values())
        for state in TaskState:
            gauge.add_metric([state.name], tally[state])
        return gauge


def _log_health(problems: tuple[Problem, ...]) -> None:
    if not problems:
        _log.info("agent_healthy")
    for problem in problems:
        _log.error("agent_unhealthy", part=problem.part, reason=problem.message)


def _amount(resources: Resources, name: str) -> float:
    milli = resources[name]
    return milli * _BYTES_PER_MILLI_MIB if name in SIZED else milli / 1000


def _fields(status: TaskStatus) -> dict[str, object]:
    fields: dict[str, object] = {
        "framework_id": status.framework_id,
        "task_id": status.task_id,
        "state": status.state.name,
        "pid": status.pid,
    }
    if status.reason:
        fields["reason"] = status.reason.name
    if status.message:
        fields["message"] = status.message
    return fields
