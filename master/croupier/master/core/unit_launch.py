"""The launch of a task, or of tasks that are one unit, on the offers of an ACCEPT.

A task takes from one hold what that has for it, and the rest from the other offers. What a unit
takes is taken from the offers once all of its tasks can be launched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from croupier.master.core import task_moves
from croupier.master.core.agents import Agent
from croupier.master.core.authorisation import require_image, require_user
from croupier.master.core.effects import Effect, Happened, Save
from croupier.master.core.frameworks import Framework
from croupier.master.core.holds import place_of
from croupier.master.core.launches import check_counts, launch_charges, order_launch
from croupier.master.core.offers import Offer
from croupier.master.core.on_executor import check_executor
from croupier.master.core.on_hold import check_volumes
from croupier.master.core.on_task import moved_fact
from croupier.master.core.state import State
from croupier.master.core.task_queues import longest_ms
from croupier.master.core.tasks import Task, TaskHold
from croupier.model.errors import Conflict, InvalidRequest
from croupier.model.ids import NO_HOLD, AgentId, HoldId, Role, TaskId
from croupier.model.resources import NOTHING, Resources, sum_of
from croupier.model.task import TaskInfo, TaskState, TaskStatus
from croupier.model.task_checks import check_task


@dataclass(slots=True)
class Accepted:
    """The offers of an ACCEPT.

    `left`: what is left of them, by hold; that of no hold last.
    """

    framework: Framework
    offers: list[Offer]
    seq: int
    left: dict[HoldId, Resources]

    @property
    def agent_id(self) -> AgentId:
        """Their agent."""
        return self.offers[0].agent_id

    @property
    def role(self) -> Role:
        """Their role."""
        return self.offers[0].role


class Part(NamedTuple):
    """The resources of a task, with certain devices.

    Attributes:
        hold_id: the hold that it takes some from; `NO_HOLD` if it takes nothing from one.
        held: that part of them.
    """

    resources: Resources
    hold_id: HoldId = NO_HOLD
    held: Resources = NOTHING


@dataclass(slots=True)
class UnitLaunch:
    """The launch of one unit.

    Attributes:
        left: what it leaves of the offers, by hold.
        parts: what each of its tasks takes.
    """

    state: State
    accepted: Accepted
    now: float
    left: dict[HoldId, Resources]
    parts: dict[TaskId, Part] = field(default_factory=dict)

    def check(self, task: TaskInfo, before: Sequence[TaskInfo]) -> None:
        """Check that a task can be launched, and take its resources from what is left.

        `before` are others of the unit. Raises InvalidRequest, PermissionDenied or Conflict if it
        cannot.
        """
        check_task(task)
        if task.preemption.requeue:
            raise InvalidRequest(
                f"task {task.task_id} is to be requeued, which only submitted tasks are"
            )
        state, framework = self.state, self.accepted.framework
        agent = state.agents[self.accepted.agent_id]
        permissions = state.permissions(framework.principal)
        if not task.executor_id:
            require_user(permissions, agent, task)
        require_image(permissions, task)
        if framework.has_used(task.task_id):
            raise InvalidRequest(
                f"task id {task.task_id} was used before; ids are never used again"
            )
        rest = dict(self.left)
        part = _take(agent, rest, task)
        check_counts(state, framework, len(before))
        # Raises no Conflict: the same offer would come again at once.
        agent.check_suitable(task)
        check_executor(framework, task, agent.agent_id)
        check_volumes(state, framework, task, self.accepted.role, agent.agent_id)
        self.left = rest
        self.parts[task.task_id] = part

    def check_all(self, tasks: Sequence[TaskInfo]) -> None:
        """Check the unit against what changed after the offer was made; raises Conflict."""
        if self.state.allocator.reservations.of(self.accepted.agent_id):
            self._check_reserved(tasks)
        self._check_limits(tasks)

    def launch(self, infos: Sequence[TaskInfo]) -> Iterator[Effect]:
        """Launch the tasks, which were checked."""
        tasks = [self._task(info) for info in infos]
        for task in tasks:
            launch_charges(self.state, task, task.agent_id)
            task_moves.add_task(self.state, task)
            yield Save(task.record())
        yield order_launch(self.state, *tasks)
        for task in tasks:
            yield Happened(moved_fact(task.status))

    def _check_reserved(self, tasks: Sequence[TaskInfo]) -> None:
        """Raise Conflict if a reservation of the agent keeps tasks away that end together.

        The agent may have been reserved after it was offered, or offered for tasks that end sooner.
        """
        accepted, now = self.accepted, self.now
        owner = (accepted.framework.framework_id, accepted.role)
        reservations = self.state.allocator.reservations
        barring = reservations.objection(accepted.agent_id, *owner, longest_ms(tasks), now)
        parts = [self.parts[each.task_id] for each in tasks]
        if barring is not None and any(part.held != part.resources for part in parts):
            starts_s = max(barring.starts_at - now, 0.0)
            raise Conflict(
                f"agent {accepted.agent_id} is reserved for another role in {starts_s:.0f} s; until"
                " then it takes only tasks whose max_completion ends before"
            )

    def _check_limits(self, tasks: Sequence[TaskInfo]) -> None:
        """Check tasks against the limits, which may have been lowered."""
        accepted, needed = self.accepted, dict[HoldId, Resources]()
        for task in tasks:
            resources, hold_id, held = self.parts[task.task_id]
            for each, amount in ((NO_HOLD, resources - held), (hold_id, held)):
                needed[each] = needed.get(each, NOTHING) + amount
        for hold_id, amount in needed.items():
            place = place_of(accepted.agent_id, hold_id)
            framework_id = accepted.framework.framework_id
            over = self.state.allocator.queries.excess(framework_id, accepted.role, amount, place)
            if over:
                raise Conflict(f"task {tasks[0].task_id} would go over a limit: {over}")

    def _task(self, info: TaskInfo) -> Task:
        framework, agent_id = self.accepted.framework, self.accepted.agent_id
        framework_id, part = framework.framework_id, self.parts[info.task_id]
        if part.resources is not info.resources and part.resources != info.resources:
            # Such as gpus:2, which are certain ones now.
            info = replace(info, resources=part.resources)
        return Task(
            info,
            framework_id,
            agent_id,
            self.accepted.role,
            TaskStatus(framework_id, info.task_id, agent_id, TaskState.STAGING),
            self.now,
            TaskHold.ACTIVE,
            client_id=framework.client_id,
            seq=self.accepted.seq,
            placed=self.now,
            hold_id=part.hold_id,
            held=part.held,
        )


def _take(agent: Agent, left: dict[HoldId, Resources], task: TaskInfo) -> Part:
    """Take the resources of a task from what is left; return them with the part of a hold.

    Raises InvalidRequest if they do not fit.
    """
    wanted, free = task.resources, left[NO_HOLD]
    if agent.inventory is not None:
        wanted = agent.certain(wanted, left.values(), task.devices)
    parts = [(each, wanted.within(room)) for each, room in left.items() if each]
    if agent.inventory is not None:
        parts = [(each, agent.inventory.undivided(part, wanted)) for each, part in parts]
    # A hold that has room for all of it comes first.
    parts.sort(key=lambda part: part[1] != wanted)
    for hold_id, part in (*parts, (NO_HOLD, NOTHING)):
        rest = wanted - part
        if rest <= free:
            left[NO_HOLD] = free - rest
            if part:
                left[hold_id] = left[hold_id] - part
            return Part(wanted, hold_id, part) if part else Part(wanted)
    why = wanted.excess(sum_of(left.values())) or "it may take from one hold only"
    raise InvalidRequest(f"task {task.task_id} does not fit: {why}")
