"""How an agent is emptied, and how far that is.

A drain is done when no task of the agent is left that has not ended. It does not wait for
frameworks to acknowledge the ends: one that never does would keep the agent draining for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from croupier.master.core.agents import Agent
from croupier.master.core.deadlines import AgentTimeout
from croupier.master.core.records import DrainRequest
from croupier.master.core.state import State
from croupier.master.core.tasks import Task
from croupier.model.ids import FrameworkId, TaskId
from croupier.model.task import Reason, TaskState

MAX_BLOCKERS = 100
# The word of an end takes a while to arrive: so long after its grace a task is not overdue.
PATIENCE_S = 3.0


@dataclass(frozen=True, slots=True)
class Blocker:
    """A task that stands in the way, and why."""

    framework_id: FrameworkId
    task_id: TaskId
    reason: str


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """How far a drain is.

    Attributes:
        grace_ms: the longest that a task is given; None: its own.
        tasks_left: that have not ended.
        estimate_s: until the last of these is ended by force; None if that cannot be said, as
            the agent is away.
        blockers: at most 100.
    """

    grace_ms: int | None
    tasks_left: int
    estimate_s: float | None
    blockers: tuple[Blocker, ...]

    @property
    def is_done(self) -> bool:
        """Whether no task is left."""
        return self.tasks_left == 0


def wanted_kill(task: Task, drain: DrainRequest) -> tuple[int | None, Reason] | None:
    """The grace and reason of the kill that a drain wants of a task; None if it has it already.

    A task that was to end before keeps the reason of that: only its grace may become shorter,
    as on its agent.
    """
    own = task.info.grace_ms
    grace_ms = own if drain.grace_ms is None else min(own, drain.grace_ms)
    if task.kill is None:
        return (None if grace_ms == own else grace_ms), Reason.AGENT_DRAINING
    known = own if task.kill.grace_ms is None else task.kill.grace_ms
    return (grace_ms, task.kill.reason) if grace_ms < known else None


def drain_progress(state: State, agent: Agent, now: float) -> DrainProgress | None:
    """How far the drain of an agent is; None if it is not being drained. O(its tasks)."""
    if agent.drain is None:
        return None
    left = [task for task in agent.tasks.values() if not task.state.is_terminal]
    blockers = list(_first(_blockers(state, agent, left, now)))
    estimate_s = None
    if agent.session is not None or not left:
        due = [at for task in left if (at := _due(task)) is not None]
        estimate_s = max(0.0, max(due, default=now) - now)
    return DrainProgress(agent.drain.grace_ms, len(left), estimate_s, tuple(blockers))


def _first(blockers: Iterator[Blocker]) -> Iterator[Blocker]:
    for _, blocker in zip(range(MAX_BLOCKERS), blockers, strict=False):
        yield blocker


def _blockers(state: State, agent: Agent, left: list[Task], now: float) -> Iterator[Blocker]:
    away = _away(state, agent, now) if agent.session is None else ""
    for task in left:
        due = _due(task)
        over = None if due is None else now - due
        if away:
            yield Blocker(task.framework_id, task.task_id, away)
        elif over is not None and over > PATIENCE_S:
            reason = f"its grace ended {over:.0f} s ago, and its agent has not said that it ended"
            yield Blocker(task.framework_id, task.task_id, reason)
    for task in agent.tasks.values():
        if task.state.is_terminal:
            name = task.state.name
            reason = f"{name}; its framework {_fares(state, task)} (the drain does not wait for it)"
            yield Blocker(task.framework_id, task.task_id, reason)


def _away(state: State, agent: Agent, now: float) -> str:
    at = state.deadlines.at(AgentTimeout(agent.agent_id))
    until = "" if at is None else f", and is given up in {max(0.0, at - now):.0f} s"
    return f"its agent is {agent.state.name}{until}; it is told when it returns"


def _fares(state: State, task: Task) -> str:
    if state.frameworks[task.framework_id].session is None:
        return "is away"
    return "has not acknowledged that"


def may_be_withdrawn(task: Task) -> bool:
    """Whether the task is to end for a drain alone, and its agent was not told of it yet."""
    kill = task.kill
    is_drained = kill is not None and kill.reason is Reason.AGENT_DRAINING and kill.due is None
    return is_drained and task.state is not TaskState.KILLING


def _due(task: Task) -> float | None:
    return None if task.kill is None else task.kill.due
