"""All that the master knows, and the one place where it is changed.

Conservation: each unit of each agent's resources is free, offered or used; `check` asserts
it, and that every index agrees with every other. A task whose agent has not returned to this
master holds nothing on the agent, but counts for its role and framework until it is decided.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from itertools import islice, takewhile
from typing import Literal

from croupier.master.allocator import Allocator
from croupier.master.allocator.charges import Charge
from croupier.master.core.agents import Agent
from croupier.master.core.byte_budget import ByteBudget
from croupier.master.core.deadlines import Deadline
from croupier.master.core.effects import SessionId
from croupier.master.core.ended_tasks import EndedTasks
from croupier.master.core.frameworks import Framework
from croupier.master.core.messages import verdict_size
from croupier.master.core.offers import Offer
from croupier.master.core.removed_ids import RemovedIds
from croupier.master.core.settings import Settings
from croupier.master.core.tasks import Task, TaskHold
from croupier.model.deadlines import Deadlines
from croupier.model.ids import AgentId, FrameworkId, OfferId, Role, TaskId
from croupier.model.resources import Resources, total_of
from croupier.model.verdict import Verdict


class State:
    """What the core decides on.

    Attributes:
        epoch: the epoch of the term, which the master's id ends with; 1 for an id without one.
        peers: who speaks on each session.
        removed: ids of frameworks that are gone for good.
        gone: ids of agents that an operator declared dead; the oldest are forgotten.
        unreachable: ids of agents that are; the oldest that nobody misses are forgotten.
        removals: when agents became unreachable lately, oldest first.
        ended: tasks that are over and done with, oldest first.
        preemptor: who starves, and what is being done about it.
        verdicts: memory of verdicts that were not marked as seen.
        descriptions: text of tasks that are known.
        initial_roles: settings of roles that hold where no operator has set any.
    """

    def __init__(self, master_id: str, settings: Settings, allocator: Allocator) -> None:
        """Know nothing yet."""
        self.master_id = master_id
        epoch = master_id.rpartition("-")[2]
        self.epoch = int(epoch) if _is_number(epoch) else 1
        self.settings = settings
        self.allocator = allocator
        self.agents: dict[AgentId, Agent] = {}
        self.frameworks: dict[FrameworkId, Framework] = {}
        self.offers: dict[OfferId, Offer] = {}
        self.peers: dict[SessionId, Agent | Framework] = {}
        self.removed = RemovedIds(self.cluster, self.epoch, settings.removed_frameworks)
        self.gone: OrderedDict[AgentId, None] = OrderedDict()
        self.unreachable: dict[AgentId, None] = {}
        self.removals: deque[float] = deque()
        self.ended = EndedTasks(settings.completed_tasks)
        self.preemptor = allocator.preemptor(settings.preemption)
        self.initial_roles = dict(allocator.queries.roles())
        self.deadlines: Deadlines[Deadline] = Deadlines()
        self.verdicts = ByteBudget(settings.verdict_bytes, settings.all_verdict_bytes)
        self.descriptions = ByteBudget(settings.description_bytes, settings.all_description_bytes)
        self._counts = {"A": 0, "F": 0, "O": 0}

    @property
    def cluster(self) -> str:
        """The cluster's name: the master's id without its epoch."""
        return self.master_id.rpartition("-")[0]

    def next_id(self, kind: Literal["A", "F", "O"]) -> str:
        """A new id, unique among all masters of this cluster."""
        while True:
            # A peer may have come with an id of its own making that looks like ours.
            spent = self.removed.last_of_term if kind == "F" else 0
            self._counts[kind] = max(self._counts[kind], spent) + 1
            made = f"{self.master_id}-{kind}{self._counts[kind]}"
            known = (self.agents, self.frameworks, self.gone)
            if not any(made in ids for ids in known):
                return made

    def has_issued(self, offer_id: OfferId) -> bool:
        """Whether the id is that of an offer which this master or an earlier one made."""
        prefix, _, number = offer_id.rpartition("-O")
        if not _is_number(number):
            return False
        if prefix == self.master_id:
            return 1 <= int(number) <= self._counts["O"]
        cluster, _, epoch = prefix.rpartition("-")
        return cluster == self.cluster and _is_number(epoch) and 1 <= int(epoch) < self.epoch

    def add_framework(
        self,
        framework_id: FrameworkId,
        name: str,
        roles: tuple[Role, ...],
        failover_timeout_s: float,
    ) -> Framework:
        """Take in a framework that is not connected yet."""
        framework = Framework(framework_id, name, roles, failover_timeout_s)
        self.frameworks[framework_id] = framework
        self.allocator.add_framework(framework_id, roles)
        return framework

    def remember_gone(self, agent_id: AgentId) -> AgentId | None:
        """Refuse the agent from now on; return the id that is forgotten, if they are too many."""
        self.gone[agent_id] = None
        if len(self.gone) > self.settings.gone_agents:
            return self.gone.popitem(last=False)[0]
        return None

    def forget_unreachable(self) -> list[AgentId]:
        """Of very many unreachable agents, forget the oldest that nobody misses; their ids.

        One may come back all the same, with its tasks, as if it had never been seen. Those that
        earlier masters gave up are older than all others, in no order. O(unreachable agents).
        """
        too_many = len(self.unreachable) - self.settings.unreachable_agents
        if too_many <= 0:
            return []
        found = (each for each in self.unreachable if self.agents[each].is_forgettable)
        forgotten = list(islice(found, too_many))
        for agent_id in forgotten:
            del self.agents[agent_id], self.unreachable[agent_id]
        return forgotten

    def add_task(self, task: Task) -> None:
        """Take in a task; charging it is a step of its own."""
        framework = self.frameworks[task.framework_id]
        framework.tasks[task.task_id] = task
        self.descriptions.add(task.framework_id, task.info.size)
        framework.ended += task.state.is_terminal
        agent = self.agents.get(task.agent_id)
        if agent is not None and not task.is_orphan:
            agent.tasks[task.framework_id, task.task_id] = task

    def charge_tasks(self, agent_id: AgentId, tasks: Iterable[Task]) -> None:
        """Charge tasks that are active on one agent. O(tasks).

        Their roles and frameworks have been charged for absent tasks already.

        Raises:
            ValueError: if their resources are not free.
        """
        listed = list(tasks)
        absent = [task.info.resources for task in listed if task.is_absent]
        found = [task for task in listed if not task.is_absent]
        if absent:
            self.allocator.charges.charge_returned(agent_id, absent)
        if found:
            self.allocator.charges.charge_all(agent_id, map(_charge, found))
        for task in listed:
            task.hold_as(TaskHold.ACTIVE)

    def release_tasks(self, agent_id: AgentId, tasks: Iterable[Task]) -> None:
        """Release what tasks of one agent hold. O(tasks)."""
        active = []
        for task in tasks:
            if task.is_active:
                active.append(task)
            else:
                self.release_task(task)
        if active:
            self.allocator.charges.release_all(agent_id, map(_charge, active))
        for task in active:
            self._on_released(task)

    def release_task(self, task: Task) -> None:
        """Release what a task holds, if it holds anything."""
        place = (task.framework_id, task.role, task.agent_id)
        if task.is_absent:
            task.hold_as(TaskHold.RELEASED)
            self.allocator.charges.release_absent(*place, task.info.resources)
        elif task.is_active:
            self.allocator.charges.release(*place, task.info.resources)
            self._on_released(task)

    def _on_released(self, task: Task) -> None:
        task.hold_as(TaskHold.RELEASED)
        self.preemptor.gone((task.framework_id, task.task_id))

    def slim_task(self, task: Task) -> None:
        """Drop the command and labels of an ended task, and cut its name, if it is large."""
        slim = task.info.slimmed()
        self.descriptions.add(task.framework_id, slim.size - task.info.size)
        task.info = slim

    def remember_verdict(self, framework: Framework, verdict: Verdict) -> None:
        """Keep a verdict until it is marked as seen: the call may be sent again.

        A framework that was removed is not answered again.
        """
        if framework.is_removed:
            return
        framework.verdicts[verdict.seq] = verdict
        self.verdicts.add(framework.framework_id, verdict_size(verdict))

    def mark_verdicts_seen(self, framework: Framework, seq: int) -> list[TaskId]:
        """See `Framework.mark_verdicts_seen`."""
        known = takewhile(lambda item: item[0] <= seq, framework.verdicts.items())
        seen = sum(verdict_size(verdict) for _, verdict in known)
        self.verdicts.add(framework.framework_id, -seen)
        return framework.mark_verdicts_seen(seq)

    def begin_run(self, framework: Framework, client_id: str) -> list[TaskId]:
        """See `Framework.begin_run`."""
        self.verdicts.add(framework.framework_id, -self.verdicts.of(framework.framework_id))
        return framework.begin_run(client_id)

    def drop_task(self, task: Task) -> None:
        """Forget a task that is over and done with, but for its id and for people.

        The ledger is told by `on_task.drop`, which uses this.
        """
        assert not task.is_counted
        framework = self.frameworks[task.framework_id]
        framework.ended -= task.state.is_terminal
        del framework.tasks[task.task_id]
        self.descriptions.add(task.framework_id, -task.info.size)
        framework.remember_used(task.task_id, self.settings.used_task_ids)
        agent = self.agents.get(task.agent_id)
        if agent is not None:
            agent.tasks.pop((task.framework_id, task.task_id), None)
        self.ended.add(task.snapshot().slimmed())

    def used(self, agent: Agent) -> Resources:
        """What tasks hold of an agent, or held when it was last known."""
        return total_of(task.info.resources for task in agent.tasks.values() if task.is_counted)

    def next_deadline(self) -> float | None:
        """When time alone will change something; None if it will not."""
        times = [self.deadlines.next(), self.allocator.next_wakeup()]
        return min((at for at in times if at is not None), default=None)


def _charge(task: Task) -> Charge:
    return task.framework_id, task.role, task.info.resources


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 20
