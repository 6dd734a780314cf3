"""The state of the master.

Conservation: each unit of each agent's resources is free, offered, used, or unused in a hold, and
all indexes agree; `tests.harness.invariants` asserts it. A task of an absent agent counts for its
role and framework only.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Literal

from croupier.master.allocator import Allocator
from croupier.master.allocator.backfill import End
from croupier.master.allocator.charges import Charge
from croupier.master.allocator.reservations import seconds_needed
from croupier.master.core.agents import Agent
from croupier.master.core.deadlines import Deadline
from croupier.master.core.durations import Durations
from croupier.master.core.effects import SessionId
from croupier.master.core.frameworks import Framework
from croupier.master.core.holds import Hold
from croupier.master.core.offers import Offer
from croupier.master.core.quotas import ByteBudget, OwnedCounts
from croupier.master.core.records import NO_OWNER, Requeue
from croupier.master.core.removed_ids import RemovedIds, is_number, place_of
from croupier.master.core.reservations import Reservation
from croupier.master.core.settings import Settings
from croupier.master.core.task_queues import shape_of
from croupier.master.core.tasks import EndedTasks, Task, TaskHold, TaskSnapshot
from croupier.master.core.tokens import Tokens
from croupier.master.core.usage import UsageLedger
from croupier.model.access import AccessPolicy, Permissions
from croupier.model.deadlines import Deadlines
from croupier.model.devices import without_slots
from croupier.model.ids import (
    NO_HOLD,
    AgentId,
    FrameworkId,
    HoldId,
    OfferId,
    ReservationId,
    Role,
)
from croupier.model.principal import Principal, PrincipalName
from croupier.model.resources import NOTHING, Resources, total_of
from croupier.model.task import Reason, TaskInfo, TaskState

if TYPE_CHECKING:
    from croupier.master.core.budgets import BudgetStatus

NO_AGENT = AgentId("")
# Most principals whose permissions are kept ready.
MAX_PERMISSIONS = 1_000
_NOT_RETURNED = "its agent has not returned since the failover"


class State:
    """Agents, frameworks, offers and tasks, with their indexes.

    Attributes:
        epoch: the epoch at the end of the master's id; 1 for an id without one.
        peers: the agent or framework of each session.
        gone: ids of agents that an operator declared gone; the oldest are forgotten.
        unreachable: ids of unreachable agents, oldest first.
        lined: ids of the agents at which tasks are lined up.
        stranded: ids of agents at which the last task of a kind has ended since the latest pass.
        holds: resources that are held for a framework or a role.
        places: the holds by the allocator's name for them.
        reservations: agents that are reserved for roles from certain times on.
        removals: times at which agents became unreachable, within the last window.
        ended: acknowledged tasks, for operators.
        verdicts: bytes of verdicts that were not marked as seen.
        descriptions: bytes of the text of known tasks.
        usage: what tasks, holds and offers had over time.
        budgets: how much of their budgets roles had used at the last accounting step.
        initial_roles: settings of the flags, which hold until an operator changes them.
        access: the groups and rules; replaced by `set_access`.
        generation: how often an operator has continued with an older copy of the store.
        durations: how long tasks have run that ended in this term.
        adopts_unproven_until: until then, listed tasks need no proof of launch.
        ended_members: tasks of gangs that ended or became unreachable in this step.
    """

    def __init__(self, master_id: str, settings: Settings, allocator: Allocator) -> None:
        self.master_id = master_id
        epoch = master_id.rpartition("-")[2]
        self.epoch = int(epoch) if is_number(epoch) else 1
        self.settings = settings
        self.allocator = allocator
        allocator.know_ends(self._ends_of)
        self.agents: dict[AgentId, Agent] = {}
        self.frameworks: dict[FrameworkId, Framework] = {}
        self.offers: dict[OfferId, Offer] = {}
        self.peers: dict[SessionId, Agent | Framework] = {}
        self.removed = RemovedIds(self.cluster, self.epoch, settings.removed_frameworks)
        self.gone: OrderedDict[AgentId, None] = OrderedDict()
        self.unreachable: dict[AgentId, None] = {}
        self.lined: dict[AgentId, None] = {}
        self.stranded: dict[AgentId, None] = {}
        self.holds: dict[HoldId, Hold] = {}
        self.places: dict[AgentId, Hold] = {}
        self.reservations: dict[ReservationId, Reservation] = {}
        self.holds_made: Counter[FrameworkId] = Counter()
        self.removals: deque[float] = deque()
        self.ended = EndedTasks(settings.completed_tasks)
        self.preemptor = allocator.preemptor(settings.preemption)
        self.initial_roles = dict(allocator.queries.roles())
        self.deadlines: Deadlines[Deadline] = Deadlines()
        self.verdicts = ByteBudget(settings.verdict_bytes, settings.all_verdict_bytes)
        self.descriptions = ByteBudget(settings.description_bytes, settings.all_description_bytes)
        self.access = AccessPolicy(settings.auth)
        self.tokens = Tokens()
        self.durations = Durations()
        self.owned = OwnedCounts()
        self.usage = UsageLedger()
        self.budgets: dict[Role, BudgetStatus] = {}
        self.generation = 0
        self.adopts_unproven_until = 0.0
        self.ended_members: list[Task] = []
        self._permissions: dict[Principal, Permissions] = {}
        self._counts = {"A": 0, "F": 0, "H": 0, "O": 0, "R": 0}
        # The time of day less the monotonic clock, in milliseconds; None until it was told.
        self._wall_offset_ms: int | None = None

    @property
    def cluster(self) -> str:
        """The cluster's name: the master's id without its epoch."""
        return self.master_id.rpartition("-")[0]

    def set_wall(self, wall_ms: int, now: float) -> None:
        """Note the time of day, in milliseconds since the epoch."""
        self._wall_offset_ms = wall_ms - round(1000 * now)

    def wall_ms(self, now: float) -> int | None:
        """Return the time of day by the latest that was told; None if none was yet."""
        return None if self._wall_offset_ms is None else self._wall_offset_ms + round(1000 * now)

    @property
    def knows_wall(self) -> bool:
        """Whether the time of day was told."""
        return self._wall_offset_ms is not None

    def at_wall(self, wall_ms: int) -> float:
        """Return the monotonic time of a time of day; the time of day was told before."""
        assert self._wall_offset_ms is not None
        return (wall_ms - self._wall_offset_ms) / 1000

    def next_id(self, kind: Literal["A", "F", "H", "O", "R"]) -> str:
        """Return a new id, unique among all masters of this cluster."""
        while True:
            # An agent may have chosen an id that looks like one of the master's.
            self._counts[kind] += 1
            made = f"{self.master_id}-{kind}{self._counts[kind]}"
            known = (self.agents, self.frameworks, self.gone, self.holds, self.reservations)
            if not any(made in ids for ids in known):
                return made

    def has_yet_to_issue(self, framework_id: FrameworkId) -> bool:
        """Return whether an id is one that masters of this cluster assign later."""
        place = place_of(framework_id, self.cluster)
        return place is not None and place > (self.epoch, self._counts["F"])

    def has_issued(self, offer_id: OfferId) -> bool:
        """Return whether this master or an earlier one has made an offer with this id."""
        prefix, _, number = offer_id.rpartition("-O")
        if not is_number(number):
            return False
        if prefix == self.master_id:
            return int(number) <= self._counts["O"]
        cluster, _, epoch = prefix.rpartition("-")
        return cluster == self.cluster and is_number(epoch) and int(epoch) < self.epoch

    def add_framework(
        self,
        framework_id: FrameworkId,
        name: str,
        roles: tuple[Role, ...],
        failover_timeout_s: float,
        owner: PrincipalName = NO_OWNER,
    ) -> Framework:
        """Add a framework that is not connected yet."""
        framework = Framework(framework_id, name, roles, failover_timeout_s, owner=owner)
        self.frameworks[framework_id] = framework
        self.allocator.add_framework(framework_id, roles, owner)
        self.owned.add(owner, frameworks=1)
        return framework

    def forget_framework(self, framework: Framework) -> None:
        """Forget a removed framework without tasks."""
        assert framework.is_removed
        assert not framework.tasks
        self.allocator.remove_framework(framework.framework_id)
        self.owned.add(framework.owner, frameworks=-1)
        del self.frameworks[framework.framework_id]

    def set_owner(self, framework: Framework, owner: PrincipalName) -> None:
        """Give a framework without an owner to `owner`."""
        assert not framework.owner
        assert not framework.offers, "they count for the account without an owner"
        self.owned.add(framework.owner, frameworks=-1, tasks=-len(framework.tasks))
        framework.owner = owner
        self.allocator.set_owner(framework.framework_id, owner)
        self.owned.add(owner, frameworks=1, tasks=len(framework.tasks))

    def set_access(self, access: AccessPolicy) -> None:
        """Replace the groups and rules."""
        self.access = access
        self._permissions.clear()

    def permissions(self, principal: Principal) -> Permissions:
        """Return what the principal may do now. O(groups + rules) for the first time."""
        found = self._permissions.get(principal)
        if found is None:
            if len(self._permissions) >= MAX_PERMISSIONS:
                self._permissions.clear()
            found = self._permissions[principal] = Permissions(self.access, principal)
        return found

    def remember_gone(self, agent_id: AgentId) -> AgentId | None:
        """Refuse the agent from now on; return the oldest id if it must be forgotten for it."""
        self.gone[agent_id] = None
        if len(self.gone) > self.settings.gone_agents:
            return self.gone.popitem(last=False)[0]
        return None

    def forget_unreachable(self) -> list[AgentId]:
        """Forget the oldest agents if too many are unreachable; return their ids.

        Agents with tasks or holds, or with a setting of an operator's, are not forgotten. A
        forgotten agent may return with its tasks, as a new one. Agents that became unreachable
        under earlier masters come first, in no order. O(unreachable agents).
        """
        too_many = len(self.unreachable) - self.settings.unreachable_agents
        if too_many <= 0:
            return []
        agents = map(self.agents.__getitem__, self.unreachable)
        found = (
            a.agent_id
            for a in agents
            if not (a.tasks or a.holds or a.deactivated or a.drain is not None)
        )
        forgotten = list(islice(found, too_many))
        for agent_id in forgotten:
            del self.agents[agent_id], self.unreachable[agent_id]
        return forgotten

    def add_task(self, task: Task) -> None:
        """Add a task without charging it."""
        framework = self.frameworks[task.framework_id]
        framework.add_task(task)
        self.descriptions.add(task.framework_id, task.info.size)
        self.owned.add(framework.owner, tasks=1)
        framework.ended += task.state.is_terminal
        agent = self.agents.get(task.agent_id)
        if task.is_lined_up:
            self.put_in_line(task)
        elif agent is not None and not task.is_orphan:
            agent.tasks[task.framework_id, task.task_id] = task
        if task.is_counted:
            self._begin_use(task)

    def enqueue(self, *unit: Task, at_begin: bool = False) -> None:
        """Queue a task or a group: the allocator deals to it. O(log n)."""
        first = unit[0]
        assert all(task.is_queued for task in unit)
        assert first.queued is not None
        queues = self.frameworks[first.framework_id].queues
        shape = shape_of([task.info for task in unit], first.queued.placement)
        key = queues.add(unit, shape, at_begin=at_begin)
        self.allocator.queue(first.framework_id, *key, 1)

    def place_task(
        self, task: Task, agent_id: AgentId, now: float, hold: TaskHold = TaskHold.ACTIVE
    ) -> None:
        """Put a task that was taken out of its queue on an agent, where it is charged already.

        With the hold RELEASED it is charged later.
        """
        task.agent_id, task.since, task.placed, task.queued = agent_id, now, now, None
        task.hold_as(hold)
        task.move(task.master_made(TaskState.STAGING, Reason.NONE, ""))
        agent = self.agents[agent_id]
        agent.tasks[task.framework_id, task.task_id] = task
        if task.is_active:
            self._begin_use(task)
            if task.kind is not None:
                agent.running[task.framework_id, task.kind] += 1

    def requeue(self, task: Task, sequence: int) -> None:
        """Put a placed task that holds nothing back to the front of its queue.

        `sequence` is the number of the last update of the run that has ended. O(log n).
        """
        before = task.requeue
        assert before is not None
        agent = self.agents.get(task.agent_id)
        if agent is not None:
            agent.tasks.pop((task.framework_id, task.task_id), None)
        # A store of a later generation may have lost the next launch.
        place = replace(before.place, generation=self.generation)
        task.requeue = Requeue(place, before.count + 1, sequence)
        task.sequence = task.acknowledged = sequence
        message = f"preempted on agent {task.agent_id}"
        task.agent_id, task.queued = NO_AGENT, place
        task.kill = task.placed = task.kind = task.master_status = None
        task.started_ms, task.begun_ms, task.has_data = 0, 0, False
        task.hold_id, task.held = NO_HOLD, NOTHING
        amount = without_slots(task.info.resources).counted()
        if amount != task.info.resources:
            task.info = replace(task.info, resources=amount)
        task.hold_as(TaskHold.QUEUED)
        task.move(task.master_made(TaskState.QUEUED, Reason.PREEMPTED, message))
        self.enqueue(task, at_begin=True)

    def put_in_line(self, task: Task) -> None:
        """Put a task into the line of its agent."""
        self.agents[task.agent_id].line[task.framework_id, task.task_id] = task
        self.lined[task.agent_id] = None

    def leave_line(self, task: Task) -> None:
        """Take a task out of the line of its agent."""
        assert task.is_lined_up
        agent = self.agents[task.agent_id]
        del agent.line[task.framework_id, task.task_id]
        if task.kind is not None:
            self.frameworks[task.framework_id].queues.lined[task.kind] -= 1
        task.is_recalled, task.agent_id = False, NO_AGENT
        if not agent.line:
            del self.lined[agent.agent_id]

    def place_lined(self, task: Task, now: float) -> None:
        """Note that a task has left the line of its agent to run there; it is charged later."""
        agent_id = task.agent_id
        self.leave_line(task)
        self.place_task(task, agent_id, now, TaskHold.RELEASED)

    def succeed(self, ended: Task, task: Task, now: float) -> None:
        """Pass the charge of an ended task to one that was lined up behind it. O(1)."""
        assert (ended.role, ended.info.resources) == (task.role, task.info.resources)
        self.leave_line(task)
        if ended.held:
            # As with all tasks in a hold, none is lined up behind it.
            task.hold_id, task.held, task.kind = ended.hold_id, ended.held, None
        self._on_released(ended)
        self.place_task(task, ended.agent_id, now)

    def dequeue(self, task: Task) -> tuple[Task, ...]:
        """Take a task and its group out of its queue without placing them; return all. O(log n)."""
        assert task.is_queued
        key, unit = self.frameworks[task.framework_id].queues.remove(task)
        self.allocator.queue(task.framework_id, *key, -1)
        for each in unit:
            each.queued = None
        return unit

    def charge_tasks(self, agent_id: AgentId, tasks: Iterable[Task]) -> None:
        """Charge tasks that are active on one agent. O(tasks).

        Absent tasks are charged to role and framework already; only the agent is charged. Raises
        ValueError if their resources are not free.
        """
        listed = list(tasks)
        absent = [(task.framework_id, task.rest) for task in listed if task.is_absent]
        found = [task for task in listed if not task.is_absent]
        if absent:
            self.allocator.charges.charge_returned(agent_id, absent)
        if found:
            self.allocator.charges.charge(agent_id, map(_charge, found))
        running = self.agents[agent_id].running
        for task in listed:
            if task.held:
                part = (task.framework_id, task.role, self.holds[task.hold_id].place, task.held)
                self.allocator.charges.charge_part(*part, is_absent=task.is_absent)
            if not task.is_absent:
                self._begin_use(task)
            task.hold_as(TaskHold.ACTIVE)
            if task.kind is not None:
                running[task.framework_id, task.kind] += 1

    def release_tasks(self, agent_id: AgentId, tasks: Iterable[Task]) -> None:
        """Release what tasks of one agent hold. O(tasks)."""
        active = []
        for task in tasks:
            if task.is_active:
                self._release_part(task)
                active.append(task)
            else:
                self.release_task(task)
        if active:
            self.allocator.charges.release_all(agent_id, map(_charge, active))
        for task in active:
            self._on_released(task)

    def release_task(self, task: Task) -> None:
        """Release what a task holds, if it holds anything."""
        charges = self.allocator.charges
        if task.is_absent:
            task.hold_as(TaskHold.RELEASED)
            self._end_use(task)
            charges.release_absent(task.framework_id, task.role, task.info.resources)
        elif task.is_active:
            self._release_part(task)
            charges.release(task.framework_id, task.role, task.agent_id, task.rest)
            self._on_released(task)

    def _release_part(self, task: Task) -> None:
        """Give back to a hold what a task took from it."""
        if task.held:
            place = self.holds[task.hold_id].place
            part = (task.framework_id, task.role, place, task.held)
            self.allocator.charges.release(*part, tasks=0)

    def _on_released(self, task: Task) -> None:
        task.hold_as(TaskHold.RELEASED)
        self._end_use(task)
        self.preemptor.ended((task.framework_id, task.task_id))
        if task.kind is not None:
            running, key = self.agents[task.agent_id].running, (task.framework_id, task.kind)
            left = running.pop(key) - 1
            if left:
                running[key] = left
            else:
                self.stranded[task.agent_id] = None

    def _begin_use(self, task: Task) -> None:
        """Count the resources of a task as used from now on."""
        framework = self.frameworks[task.framework_id]
        task.account = framework.account(task.role, task.info.labels)
        self.usage.use(task.account, task.info.resources.scalars)
        self.usage.touch(task.hold_id)

    def _end_use(self, task: Task) -> None:
        assert task.account is not None
        self.usage.use(task.account, task.info.resources.scalars, -1)
        self.usage.touch(task.hold_id)
        task.account = None

    def slim_task(self, task: Task) -> None:
        """Drop the command and labels of a large task that has ended."""
        slim = task.info.slimmed()
        if slim is not task.info:
            self.redescribe(task, slim)

    def redescribe(self, task: Task, info: TaskInfo) -> None:
        """Replace the description of a task."""
        self.descriptions.add(task.framework_id, info.size - task.info.size)
        task.info = info

    def drop_task(self, task: Task) -> None:
        """Forget a task that needs no more updates; operators can still list it."""
        assert not task.is_counted
        framework = self.frameworks[task.framework_id]
        framework.ended -= task.state.is_terminal
        framework.done += 1
        framework.failed += task.state.is_failure
        framework.remove_task(task)
        self.descriptions.add(task.framework_id, -task.info.size)
        self.owned.add(framework.owner, tasks=-1)
        framework.remember_used(task.task_id, self.settings.used_task_ids)
        agent = self.agents.get(task.agent_id)
        if agent is not None:
            agent.tasks.pop((task.framework_id, task.task_id), None)
        self.ended.add(self.snapshot(task, framework.owner).slimmed())

    def snapshot(self, task: Task, owner: PrincipalName = NO_OWNER) -> TaskSnapshot:
        """Return a task at this moment; `owner` is that of a task that is forgotten."""
        agent, status = self.agents.get(task.agent_id), task.status
        if task.is_absent and not status.message:
            status = replace(status, message=_NOT_RETURNED)
        return TaskSnapshot(
            task.info,
            task.framework_id,
            task.role,
            status,
            owner,
            since=task.since if task.submitted is None else task.submitted,
            submitted=task.submitted,
            placed=task.placed,
            started_ms=task.started_ms,
            framework_name=self.frameworks[task.framework_id].name,
            hostname="" if agent is None else agent.hostname,
            hold_id=task.hold_id,
            requeues=0 if task.requeue is None else task.requeue.count,
        )

    def _ends_of(self, agent_id: AgentId) -> Iterator[End]:
        """Yield when tasks of an agent will have ended that have a declared time. O(its tasks)."""
        agent = self.agents.get(agent_id)
        for task in agent.tasks.values() if agent is not None else ():
            time_ms = task.info.max_completion_ms
            if task.is_active and not task.held and task.placed is not None and time_ms:
                yield task.placed + seconds_needed(time_ms), task.info.resources

    def used(self, agent: Agent) -> Resources:
        """Return the resources of an agent that its tasks hold, or held when it was connected."""
        return total_of(task.info.resources for task in agent.tasks.values() if task.is_counted)

    def next_deadline(self) -> float | None:
        """Return when `TimePassed` is due; None if nothing waits for time."""
        times = [self.deadlines.next(), self.allocator.next_wakeup()]
        return min((at for at in times if at is not None), default=None)


def _charge(task: Task) -> Charge:
    return task.framework_id, task.role, task.rest
