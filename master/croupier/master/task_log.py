"""The log line of each task's end: its whole life. Its single steps are lines at debug."""

from __future__ import annotations

from typing import Final

from croupier.master.core import facts
from croupier.master.core.state import State
from croupier.model.clock import Clock
from croupier.process.logging import get_logger, time_text

_log: Final = get_logger("croupier.master")


class TaskLog:
    """Logs the ends of tasks of one term."""

    def __init__(self, state: State, clock: Clock) -> None:
        """Find in `state` what a fact does not say."""
        self._frameworks, self._agents, self._clock = state.frameworks, state.agents, clock

    def happened(self, fact: facts.Fact) -> None:
        """Log a fact that is the end of a task."""
        if not (isinstance(fact, facts.TaskMoved) and fact.state.is_terminal):
            return
        framework = self._frameworks.get(fact.framework_id)
        task = None if framework is None else framework.tasks.get(fact.task_id)
        agent = self._agents.get(fact.agent_id)
        status = None if task is None else task.status
        _log.info(
            "task_ended",
            framework_id=fact.framework_id,
            framework=None if framework is None else framework.name,
            role=None if task is None else task.role,
            task_id=fact.task_id,
            agent_id=fact.agent_id or None,
            hostname=None if agent is None else agent.hostname,
            state=fact.state.name,
            reason=fact.reason.name if fact.reason else None,
            source=fact.source.name,
            exit_code=None if status is None else status.exit_code,
            signal=None if status is None else status.signal,
            message=fact.message or None,
            queued_at=self._at(None if task is None else task.submitted),
            placed_at=self._at(None if task is None else task.placed),
            started_at=time_text(task.started_ms) if task and task.started_ms else None,
            ended_at=time_text((status and status.time_ms) or self._clock.wall_ms()),
        )

    def _at(self, seconds: float | None) -> str | None:
        """Return a time of the steady clock as text."""
        if seconds is None:
            return None
        return time_text(self._clock.wall_ms() - round((self._clock.now() - seconds) * 1000))
