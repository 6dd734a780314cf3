"""Preemption at random moments: masters take tasks back, which run again or end."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from croupier.master.core.effects import Effect
from croupier.master.core.framework_commands import OperatorKill
from croupier.master.core.on_task import kill
from croupier.master.core.state import State
from croupier.master.core.tasks import TaskSnapshot
from croupier.model.task import Reason


@dataclass(frozen=True, slots=True)
class PreemptTask(OperatorKill):
    """Order the kill of a task as preemption does, after the grace of a victim."""

    def execute(self, state: State, now: float) -> Generator[Effect, None, TaskSnapshot]:
        """Order it, if the task can be a victim."""
        task = self._find(state, state.permissions(self.caller))
        if task.is_active and task.kill is None:
            yield from kill(state, task, None, Reason.PREEMPTED, now)
        return state.snapshot(task)
