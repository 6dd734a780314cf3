"""The log line of each task's end: its life on this agent. Its single steps are lines at debug."""

from __future__ import annotations

import logging
from typing import Final

from croupier.agent.core.tasks import Key
from croupier.model.clock import Clock
from croupier.model.task import TaskState, TaskStatus
from croupier.process.logging import get_logger, is_logged, time_text

_log: Final = get_logger("croupier.agent")


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
