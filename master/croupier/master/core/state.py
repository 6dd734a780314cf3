"""The state of the master.

Conservation: each unit of each agent's resources is free, offered, used, or unused in a hold, and
all indexes agree; `tests.harness.invariants` asserts it. A task of an absent agent counts for its
role and framework only.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Literal

from croupier.master.allocator import Allocator
from croupier.master.allocator.backfill import End
from croupier.master.allocator.reservations import seconds_needed
from croupier.master.core.agents import Agent
from croupier.master.core.deadlines import Deadline
from croupier.master.core.durations import Durations
from croupier.master.core.effects import SessionId
from croupier.master.core.frameworks import Framework
from croupier.master.core.holds import Hold
from croupier.master.core.offers import Offer
from croupier.master.core.quotas import ByteBudget, OwnedCounts
from croupier.master.core.records import NO_OWNER
from croupier.master.core.removed_ids import RemovedIds, is_number, place_of
from croupier.master.core.reservations import Reservation
from croupier.master.core.settings import Settings
from croupier.master.core.tasks import EndedTasks, Task, TaskSnapshot
from croupier.master.core.tokens import Tokens
from croupier.master.core.usage import UsageLedger
from croupier.model.access import AccessPolicy, Permissions
from croupier.model.deadlines import Deadlines
from croupier.model.ids import (
    AgentId,
    FrameworkId,
    HoldId,
    OfferId,
    ReservationId,
    Role,
)
from croupier.model.principal import Principal, PrincipalName
from croupier.model.resources import Resources, total_of
from croupier.model.task import TaskInfo

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
        ended_members: tasks of gangs whose runs ended, or that became unreachable, in this step.
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

    def redescribe(self, task: Task, info: TaskInfo) -> None:
        """Replace the description of a task."""
        self.descriptions.add(task.framework_id, info.size - task.info.size)
        task.info = info

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
            if task.is_active and not task.held and time_ms:
                yield task.since + seconds_needed(time_ms), task.info.resources

    def used(self, agent: Agent) -> Resources:
        """Return the resources of an agent that its tasks hold, or held when it was connected."""
        return total_of(task.info.resources for task in agent.tasks.values() if task.is_counted)

    def next_deadline(self) -> float | None:
        """Return when `TimePassed` is due; None if nothing waits for time."""
        times = [self.deadlines.next(), self.allocator.next_wakeup()]
        return min((at for at in times if at is not None), default=None)
