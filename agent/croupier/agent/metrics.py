"""Metrics and log lines of what happens. `gauges` has what is sampled at each scrape.

Labels are bounded: states, reasons, outcomes and steps. The end of a task is one log line with its
life on this agent; its single steps are lines at debug.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from croupier.agent.core import effects as fx
from croupier.agent.core import events as ev
from croupier.agent.core.events import Event
from croupier.agent.core.tasks import Key
from croupier.model.clock import Clock
from croupier.model.task import Reason, TaskState, TaskStatus
from croupier.process.logging import get_logger, is_logged, time_text

_log: Final = get_logger("croupier.agent")
# Answers to adoptions. `Started` and `NotStarted` answer launches.
_OUTCOMES: Final[dict[type[Event], str]] = {
    ev.Adopted: "running",
    ev.Exited: "ended",
    ev.LaunchFailed: "failed",
    ev.Vanished: "vanished",
}
_ANSWERS = (ev.Started, ev.NotStarted, ev.LaunchFailed, ev.Adopted, ev.Exited, ev.Vanished)
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_LIMITS: Final = {
    Reason.MEMORY_LIMIT: "memory",
    Reason.DISK_LIMIT: "disk",
    Reason.TIMED_OUT: "time",
}
# Names without the prefix `croupier_` and without `_total`, HELP texts, and labels.
COUNTERS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "agent_task_limits_exceeded": (
        "Tasks that failed because they exceeded a limit: memory, disk or time.",
        ("limit",),
    ),
    "agent_task_transitions": ("Task state transitions.", ("state", "reason")),
    "agent_status_updates": (
        "Status updates by outcome: sent, resent or acknowledged.",
        ("outcome",),
    ),
    "agent_container_errors": (
        "Launches that failed, by step: user, sandbox, secrets, isolation or exec.",
        ("step",),
    ),
    "agent_execs": (
        "Commands ordered beside tasks by outcome: ended, refused, or cancelled with their stream.",
        ("outcome",),
    ),
    "agent_executor_drops": (
        "Messages of executors, or for them, and updates that were dropped.",
        ("what",),
    ),
    "agent_outdated_orders": ("Kills refused because their framework epoch was old.", ()),
    "agent_launches_refused": ("Launches refused because the agent was unhealthy.", ()),
    "agent_recovered_tasks": (
        "Tasks of an earlier life by outcome: running, ended, failed, vanished or unstarted.",
        ("outcome",),
    ),
    "agent_recovery_errors": ("Damaged records that were left out.", ()),
    "agent_checkpoint_bytes": ("Bytes of records made durable.", ()),
}
# Names without the prefix and without `_seconds`, and HELP texts.
HISTOGRAMS: Final = {
    "agent_checkpoint_commit": "Time to make records durable.",
    "agent_launch": "Time from a launch order to the running process.",
    "agent_turn": "Time of a turn of the driver, less its commit.",
}
# Label values that are exported as 0 before their first event.
_LABEL_VALUES = {
    "agent_task_limits_exceeded": tuple(_LIMITS.values()),
    "agent_status_updates": ("sent", "resent", "acknowledged"),
    "agent_container_errors": ("user", "sandbox", "secrets", "isolation", "exec"),
    "agent_recovered_tasks": tuple(_OUTCOMES.values()),
    "agent_execs": ("ended", "refused", "cancelled"),
    "agent_executor_drops": ("to_framework", "to_executor", "update"),
}


class TaskLog:
    """Logs what becomes of tasks; it remembers the times of live ones."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # When tasks of this life of the agent were ordered and started, in ms since the epoch.
        self._ordered: dict[Key, int] = {}
        self._started: dict[Key, int] = {}

    def ordered(self, key: Key) -> None:
        """Note that a task is being launched."""
        self._ordered[key] = self._clock.wall_ms()

    def moved(self, status: TaskStatus) -> None:
        """Log a change of a task's state."""
        key = status.framework_id, status.task_id
        if status.state is TaskState.RUNNING:
            self._started[key] = status.time_ms
        if not status.state.is_terminal:
            if is_logged(logging.DEBUG):
                _log.debug(
                    "task_moved",
                    framework_id=status.framework_id,
                    task_id=status.task_id,
                    state=status.state.name,
                    reason=status.reason.name if status.reason else None,
                    message=status.message or None,
                    pid=status.pid or None,
                )
            return
        ordered_ms, started_ms = self._ordered.pop(key, None), self._started.pop(key, None)
        _log.info(
            "task_ended",
            framework_id=status.framework_id,
            task_id=status.task_id,
            state=status.state.name,
            reason=status.reason.name if status.reason else None,
            exit_code=status.exit_code,
            signal=status.signal,
            message=status.message or None,
            pid=status.pid or None,
            ordered_at=None if ordered_ms is None else time_text(ordered_ms),
            started_at=None if started_ms is None else time_text(started_ms),
            ended_at=time_text(status.time_ms),
        )


class Metrics:
    """Counts and logs what reactor and driver do; `on_status` gets each new status of a task."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self._clock, self._task_log = clock, TaskLog(clock)
        self._ordered_at: dict[Key, float] = {}
        self._adopting: dict[Key, str] = {}
        self.on_status: Callable[[TaskStatus], None] = lambda _: None
        # Counters by name and values of labels: a lookup by the library costs more than a count.
        self._children: dict[tuple[str, tuple[str, ...]], Counter] = {}
        self._counters = {
            name: Counter(f"croupier_{name}", text, labels, registry=registry)
            for name, (text, labels) in COUNTERS.items()
        }
        self._seconds = {
            name: Histogram(f"croupier_{name}_seconds", text, registry=registry, buckets=_SECONDS)
            for name, text in HISTOGRAMS.items()
        }
        for name, values in _LABEL_VALUES.items():
            for value in values:
                self._counters[name].labels(value)

    def decided(self, event: Event, _effects: Sequence[fx.Effect], /) -> None:
        """Measure launches and count adoptions by their answers."""
        if not isinstance(event, _ANSWERS):
            return
        ordered_at = self._ordered_at.pop(event.key, None)
        if ordered_at is not None and isinstance(event, ev.Started):
            self._seconds["agent_launch"].observe(self._clock.now() - ordered_at)
        run = self._adopting.pop(event.key, None)
        if run is not None:
            is_unstarted = isinstance(event, ev.Vanished) and event.never_started
            outcome = "unstarted" if is_unstarted else _OUTCOMES[type(event)]
            self.count("agent_recovered_tasks", outcome)
            framework_id, task_id = event.key
            _log.debug(
                "task_found", framework_id=framework_id, task_id=task_id, run=run, outcome=outcome
            )

    def performed(self, effect: fx.Effect) -> None:
        """Count and log an effect."""
        match effect:
            case fx.Moved(status):
                self.count("agent_task_transitions", status.state.name, status.reason.name)
                if status.state.is_terminal and status.reason in _LIMITS:
                    self.count("agent_task_limits_exceeded", _LIMITS[status.reason])
                self.on_status(status)
                self._task_log.moved(status)
            case fx.SendUpdates(_, statuses, again):
                outcome = "resent" if again else "sent"
                self.count("agent_status_updates", outcome, by=len(statuses))
            case fx.Dropped(what):
                self.count("agent_executor_drops", what)
            case fx.Acknowledged(count):
                self.count("agent_status_updates", "acknowledged", by=count)
            case fx.Spawn(key):
                self._ordered_at[key] = self._clock.now()
                self._task_log.ordered(key)
            case fx.Adopt(key, run):
                self._adopting[key] = run
            case fx.RefuseLaunch():
                self.count("agent_launches_refused")
            case fx.Outdated(key, epoch):
                self.count("agent_outdated_orders")
                _log.warning(
                    "order_refused", framework_id=key[0], task_id=key[1], framework_epoch=epoch
                )
            case fx.HealthChanged(_, problems):
                if not problems:
                    _log.info("agent_healthy")
                for problem in problems:
                    _log.error("agent_unhealthy", part=problem.part, reason=problem.message)
            case _:
                # The others leave a trace elsewhere, or none.
                pass

    def committed(self, seconds: float, size: int) -> None:
        """Count a commit of `size` bytes of records."""
        self._seconds["agent_checkpoint_commit"].observe(seconds)
        self.count("agent_checkpoint_bytes", by=size)

    def turned(self, seconds: float) -> None:
        """Count a turn of the driver, without its commit."""
        self._seconds["agent_turn"].observe(seconds)

    def count(self, name: str, *labels: str, by: int = 1) -> None:
        """Count an event, by a name in `COUNTERS` and the values of its labels."""
        child = self._children.get((name, labels))
        if child is None:
            counter = self._counters[name]
            child = self._children[name, labels] = counter.labels(*labels) if labels else counter
        child.inc(by)
