"""The immutable status of an agent, for operators, and the progress of its drain.

A drain is done when all tasks of the agent have ended. It does not wait for acknowledgements: a
framework that never acknowledges would block the drain for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from croupier.master.core import hold_charges
from croupier.master.core.agents import Agent
from croupier.master.core.deadlines import AgentTimeout
from croupier.master.core.messages import AgentDescription
from croupier.master.core.state import State
from croupier.master.core.tasks import Task
from croupier.model.access import AGENT_USER
from croupier.model.devices import slots_of
from croupier.model.health import Problem
from croupier.model.ids import FrameworkId, TaskId
from croupier.model.resources import Resources, total_of
from croupier.model.scalar import MILLI
from croupier.model.task import Reason, TaskState

MAX_BLOCKERS = 100
# Time that a terminal update may take to arrive; after it a killed task is overdue.
PATIENCE_S = 3.0


@dataclass(frozen=True, slots=True)
class Blocker:
    """A task that blocks a drain, with the reason."""

    framework_id: FrameworkId
    task_id: TaskId
    reason: str


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """The progress of a drain.

    Attributes:
        grace_ms: the longest that a task may take to end by itself; None: its own grace.
        tasks_left: the number of tasks that have not ended.
        estimate_s: seconds until the agent kills the last of these by force; None while it is
            disconnected.
        blockers: at most 100.
    """

    grace_ms: int | None
    tasks_left: int
    estimate_s: float | None
    blockers: tuple[Blocker, ...]

    @property
    def is_done(self) -> bool:
        """Whether all tasks have ended."""
        return self.tasks_left == 0


def drain_kills(agent: Agent) -> list[tuple[Task, int | None, Reason]]:
    """Return the kills that an agent's drain still has to request: tasks, graces and reasons.

    An earlier kill keeps its reason. Only its grace may become shorter, as on the agent.
    """
    kills: list[tuple[Task, int | None, Reason]] = []
    for task in agent.tasks.values() if agent.drain is not None else ():
        own = task.info.grace_ms
        most = own if agent.drain is None or agent.drain.grace_ms is None else agent.drain.grace_ms
        grace_ms, kill = min(own, most), task.kill
        if task.state.is_terminal:
            continue
        if kill is None:
            kills.append((task, None if grace_ms == own else grace_ms, Reason.AGENT_DRAINING))
        elif grace_ms < (own if kill.grace_ms is None else kill.grace_ms):
            kills.append((task, grace_ms, kill.reason))
    return kills


def drain_progress(state: State, agent: Agent, now: float) -> DrainProgress | None:
    """Return the progress of an agent's drain; None if it is not drained. O(its tasks)."""
    if agent.drain is None:
        return None
    left = [task for task in agent.tasks.values() if not task.state.is_terminal]
    blockers = tuple(islice(_blockers(state, agent, left, now), MAX_BLOCKERS))
    estimate_s = None
    if agent.session is not None or not left:
        due = [at for task in left if (at := _due(task)) is not None]
        estimate_s = max(0.0, max(due, default=now) - now)
    return DrainProgress(agent.drain.grace_ms, len(left), estimate_s, blockers)


def _blockers(state: State, agent: Agent, left: list[Task], now: float) -> Iterator[Blocker]:
    absence = _absence(state, agent, now) if agent.session is None else ""
    for task in left:
        due = _due(task)
        if absence:
            yield Blocker(task.framework_id, task.task_id, absence)
        elif due is not None and now - due > PATIENCE_S:
            ago = f"its grace ended {now - due:.0f} s ago"
            reason = f"{ago}, and its agent has not reported that it ended"
            yield Blocker(task.framework_id, task.task_id, reason)
    for task in agent.tasks.values():
        if task.state.is_terminal:
            name = task.state.name
            is_connected = state.frameworks[task.framework_id].session is not None
            why = "has not acknowledged that" if is_connected else "is disconnected"
            reason = f"{name}; its framework {why} (the drain does not wait for it)"
            yield Blocker(task.framework_id, task.task_id, reason)


def _absence(state: State, agent: Agent, now: float) -> str:
    at = state.deadlines.at(AgentTimeout(agent.agent_id))
    until = "" if at is None else f", and becomes unreachable in {max(0.0, at - now):.0f} s"
    return f"its agent is {agent.state_name}{until}; the task is killed when the agent returns"


def may_be_withdrawn(task: Task) -> bool:
    """Return whether only a drain kills the task, and its agent has not been ordered to."""
    kill = task.kill
    is_drained = kill is not None and kill.reason is Reason.AGENT_DRAINING and kill.due is None
    return is_drained and task.state is not TaskState.KILLING


def _due(task: Task) -> float | None:
    return None if task.kill is None else task.kill.due


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """The part of a named device that a task has, in thousandths."""

    device_id: str
    framework_id: FrameworkId
    task_id: TaskId
    milli: int


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """An agent at one moment.

    Attributes:
        held: the part of its holds that is neither used nor offered.
        tasks: the number of tasks that have not ended.
        timeout_in_s: seconds until a disconnected agent becomes unreachable; None if it will not.
        drain: None unless the agent is being drained.
        default_user: the account of tasks that name no user.
        connected_at: when its session began, in monotonic seconds; None if it has none.
        device_uses: the live tasks on its named devices.
    """

    agent: AgentDescription
    state: str
    total: Resources
    used: Resources
    offered: Resources
    held: Resources
    tasks: int
    deactivated: bool
    problems: tuple[Problem, ...]
    timeout_in_s: float | None
    drain: DrainProgress | None
    default_user: str = AGENT_USER
    connected_at: float | None = None
    device_uses: tuple[DeviceUse, ...] = ()


def agent_status(state: State, agent: Agent, now: float) -> AgentStatus:
    """Return the status of an agent, which may just have been declared gone. O(its tasks)."""
    due = state.deadlines.at(AgentTimeout(agent.agent_id))
    return AgentStatus(
        agent=agent.describe(),
        state=agent.state_name,
        total=agent.total,
        used=state.used(agent),
        offered=total_of(offer.resources for offer in agent.offers.values()),
        held=total_of(hold_charges.idle(state, hold) for hold in agent.holds.values()),
        tasks=sum(not task.state.is_terminal for task in agent.tasks.values()),
        deactivated=agent.deactivated,
        problems=agent.problems,
        timeout_in_s=None if due is None else max(0.0, due - now),
        drain=drain_progress(state, agent, now),
        default_user=agent.default_user,
        connected_at=None if agent.session is None else agent.connected_at,
        device_uses=tuple(_device_uses(agent)),
    )


def _device_uses(agent: Agent) -> Iterator[DeviceUse]:
    if agent.inventory is None:
        return
    for task in agent.tasks.values():
        mine = agent.inventory.by_device(slots_of(task.info.resources))
        for device, number in mine.items() if not task.state.is_terminal else ():
            milli = number * MILLI // device.slots
            yield DeviceUse(device.device_id, task.framework_id, task.task_id, milli)
