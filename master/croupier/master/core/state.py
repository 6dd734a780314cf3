"""All that the master knows, and the one place where it is changed.

Conservation: each unit of each agent's resources is free, offered or used; `check` asserts
it, and that every index agrees with every other. A task whose agent has not returned to this
master holds nothing on the agent, but counts for its role and framework until it is decided.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice, takewhile
from typing import Literal

from croupier.master.allocator import Allocator
from croupier.master.allocator.charges import Charge
from croupier.master.core.agents import Agent, AgentState
from croupier.master.core.byte_budget import ByteBudget
from croupier.master.core.deadlines import AgentTimeout, Deadline, FailoverTimeout
from croupier.master.core.effects import SessionId
from croupier.master.core.ended_tasks import EndedTasks
from croupier.master.core.frameworks import Framework, FrameworkState
from croupier.master.core.messages import verdict_size
from croupier.master.core.offers import Offer
from croupier.master.core.records import Registry, TaskRecord
from croupier.master.core.removed_ids import RemovedIds
from croupier.master.core.settings import Settings
from croupier.master.core.tasks import Task
from croupier.model.deadlines import Deadlines
from croupier.model.ids import AgentId, FrameworkId, OfferId, Role, TaskId
from croupier.model.resources import Resources, sum_of, total_of
from croupier.model.task import MASTER_SEQUENCE, Reason, TaskState, TaskStatus
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
        self.removed = RemovedIds(self.cluster, self.epoch, settings.spent_frameworks)
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

    @classmethod
    def recovered(
        cls,
        registry: Registry,
        master_id: str,
        settings: Settings,
        allocator: Allocator,
        now: float,
    ) -> State:
        """What a new master knows from its predecessor's records, all of it away for now.

        Tasks are known, but not how they stand: that is for their agents to say.
        """
        state = cls(master_id, settings, allocator)
        for record in registry.agents.values():
            if record.gone:
                state.spend_agent_id(record.agent_id)
                continue
            agent = Agent(
                record.agent_id,
                record.hostname,
                total=record.total,
                last_heard=now,
                deactivated=record.deactivated,
                drain=record.drain,
            )
            state.agents[agent.agent_id] = agent
            if record.unreachable:
                agent.move(AgentState.UNREACHABLE)
                state.unreachable[agent.agent_id] = None
                continue
            agent.is_recovering = True
            allocator.absent.add(agent.agent_id, agent.total.scalars)
            state.deadlines.set(AgentTimeout(agent.agent_id), now + settings.return_timeout_s)
        for role in registry.roles.values():
            allocator.set_role(role.role, role.settings)
        for known in registry.frameworks.values():
            if known.removed:
                state.spend_framework_id(known.framework_id, known.is_unrecorded)
                continue
            framework = state.add_framework(
                known.framework_id, known.name, known.roles, known.failover_timeout_s
            )
            framework.client_id, framework.epoch = known.client_id, known.epoch
            framework.earlier_clients = known.earlier_clients
            framework.is_unrecorded = known.is_unrecorded
            # It may be connected to this day, for all we know: it is given time to come back.
            until = now + max(known.failover_timeout_s, settings.agent_timeout_s)
            state.deadlines.set(FailoverTimeout(known.framework_id), until)
        for entry in registry.tasks.values():
            state._recall(entry, now)
        state._charge_undecided()
        return state

    def _recall(self, entry: TaskRecord, now: float) -> None:
        """Take in a task from the ledger."""
        framework = self.frameworks.get(entry.framework_id)
        if framework is None:
            # Removed while some of its tasks had yet to end.
            framework = self.add_framework(entry.framework_id, "", (entry.role,), 0.0)
            framework.move(FrameworkState.REMOVED)
        task_id = entry.info.task_id
        if entry.client_id and entry.client_id == framework.client_id:
            framework.accepted.setdefault(entry.seq, set()).add(task_id)
        if entry.is_acknowledged:
            framework.spend(task_id, self.settings.spent_ids)
            framework.unseen.setdefault(entry.seq, []).append(task_id)
            return
        agent = self.agents.get(entry.agent_id)
        status = entry.master_status or TaskStatus(
            entry.framework_id, task_id, entry.agent_id, TaskState.STAGING
        )
        if agent is None and not status.state.is_terminal:
            status = replace(
                status,
                state=TaskState.GONE,
                reason=Reason.AGENT_UNKNOWN,
                message="its agent is not known any more",
                sequence=MASTER_SEQUENCE,
            )
        is_orphan = status.state.is_terminal
        kill = entry.kill
        if framework.state is FrameworkState.REMOVED:
            kill = (None, Reason.FRAMEWORK_REMOVED)
        task = Task(
            entry.info.slimmed() if is_orphan else entry.info,
            entry.framework_id,
            entry.agent_id,
            entry.role,
            status,
            now,
            sequence=status.sequence,
            kill=kill,
            is_orphan=is_orphan,
            client_id=entry.client_id,
            seq=entry.seq,
            told=entry.master_status,
            # Nobody has acknowledged that it is unreachable.
            is_untold=agent is not None and agent.state is AgentState.UNREACHABLE,
            is_undecided=agent is not None and agent.is_recovering and not is_orphan,
        )
        self.add_task(task)

    def _charge_undecided(self) -> None:
        """Charge tasks whose agents have not returned to their roles and frameworks."""
        held: dict[tuple[FrameworkId, Role], list[tuple[AgentId, Resources]]] = {}
        for agent in self.agents.values():
            for task in agent.tasks.values():
                if task.is_undecided:
                    place = (task.framework_id, task.role)
                    held.setdefault(place, []).append((task.agent_id, task.info.resources))
        for (framework_id, role), amounts in held.items():
            self.allocator.charges.charge_absent(framework_id, role, amounts)

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

    def spend_framework_id(
        self, framework_id: FrameworkId, is_unrecorded: bool
    ) -> FrameworkId | None:
        """See `RemovedIds.add`."""
        return self.removed.add(framework_id, is_unrecorded)

    def spend_agent_id(self, agent_id: AgentId) -> AgentId | None:
        """Remember that the agent is gone; of very many the oldest is forgotten, and returned."""
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

    def charge_task(self, task: Task) -> None:
        """Have a task that was found on its agent hold its resources there.

        If it was undecided it is no longer; its role and framework have been charged already.

        Raises:
            ValueError: if they are not free.
        """
        amount = task.info.resources
        if task.is_undecided:
            self.allocator.charges.charge_returned(task.agent_id, [amount])
        else:
            self.allocator.charges.charge(task.framework_id, task.role, task.agent_id, amount)
        task.is_undecided, task.is_charged = False, True

    def charge_tasks(self, agent_id: AgentId, tasks: Iterable[Task]) -> None:
        """Have tasks that were found on their agent hold their resources. O(tasks).

        Raises:
            ValueError: if they are not free.
        """
        charged = list(tasks)
        undecided = [task for task in charged if task.is_undecided]
        found = [task for task in charged if not task.is_undecided]
        if undecided:
            self.allocator.charges.charge_returned(
                agent_id, [task.info.resources for task in undecided]
            )
        if found:
            self.allocator.charges.charge_all(agent_id, map(_charge, found))
        for task in charged:
            task.is_undecided, task.is_charged = False, True

    def release_tasks(self, agent_id: AgentId, tasks: Iterable[Task]) -> None:
        """Give back what tasks of one agent hold, those of them that hold anything. O(tasks)."""
        charged = []
        for task in tasks:
            if task.is_charged:
                charged.append(task)
            else:
                self.release_task(task)
        if charged:
            self.allocator.charges.release_all(agent_id, map(_charge, charged))
        for task in charged:
            task.is_charged = False
            self.preemptor.gone((task.framework_id, task.task_id))

    def release_task(self, task: Task) -> None:
        """Give back what an ended or unreachable task held; nothing if it held nothing."""
        place = (task.framework_id, task.role, task.agent_id)
        if task.is_undecided:
            task.is_undecided = False
            self.allocator.charges.release_absent(*place, task.info.resources)
        if task.is_charged:
            task.is_charged = False
            self.allocator.charges.release(*place, task.info.resources)
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
        if framework.state is FrameworkState.REMOVED:
            return
        framework.verdicts[verdict.seq] = verdict
        self.verdicts.add(framework.framework_id, verdict_size(verdict))

    def verdicts_arrived(self, framework: Framework, seq: int) -> list[TaskId]:
        """See `Framework.verdicts_arrived`."""
        known = takewhile(lambda item: item[0] <= seq, framework.verdicts.items())
        seen = sum(verdict_size(verdict) for _, verdict in known)
        self.verdicts.add(framework.framework_id, -seen)
        return framework.verdicts_arrived(seq)

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
        framework.spend(task.task_id, self.settings.spent_ids)
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

    def check(self) -> None:
        """Assert every invariant."""
        self.allocator.check()
        self.preemptor.check()
        self._check_absent()
        for agent in self.agents.values():
            self._check_agent(agent)
        for framework in self.frameworks.values():
            self._check_framework(framework)
        for offer in self.offers.values():
            assert self.agents[offer.agent_id].offers[offer.offer_id] is offer
            assert self.frameworks[offer.framework_id].offers[offer.offer_id] is offer
        for session, peer in self.peers.items():
            assert peer.session == session

    def _check_absent(self) -> None:
        charged = {
            agent.agent_id: self.used(agent).scalars
            for agent in self.agents.values()
            if agent.is_recovering
        }
        assert self.allocator.absent.charged() == charged

    def _check_agent(self, agent: Agent) -> None:
        is_here = agent.state in (AgentState.CONNECTED, AgentState.SUSPECT)
        assert is_here == (agent.session is not None)
        assert not is_here or not agent.is_recovering
        assert not agent.offers or agent.is_dealt
        assert agent.agent_id not in self.gone
        assert agent.state is not AgentState.UNREACHABLE or not agent.in_pool
        assert agent.session is None or self.peers[agent.session] is agent
        assert all(self.offers[offer_id] is offer for offer_id, offer in agent.offers.items())
        for (framework_id, task_id), task in agent.tasks.items():
            assert self.frameworks[framework_id].tasks[task_id] is task
            live = agent.in_pool and not task.state.is_terminal
            assert task.is_charged == live, f"{task_id} {task.state.name}"
            assert task.is_undecided == (agent.is_recovering and not task.state.is_terminal)
        if agent.in_pool:
            held = sum_of(
                (
                    self.allocator.queries.free(agent.agent_id),
                    *(offer.resources for offer in agent.offers.values()),
                    *(task.info.resources for task in agent.tasks.values() if task.is_charged),
                )
            )
            assert held == agent.total, f"{agent.agent_id}: {held} is not {agent.total}"

    def _check_framework(self, framework: Framework) -> None:
        assert (framework.state is FrameworkState.CONNECTED) == (framework.session is not None)
        assert not framework.offers or framework.session is not None
        assert framework.session is None or self.peers[framework.session] is framework
        assert all(self.offers[offer_id] is offer for offer_id, offer in framework.offers.items())
        framework_id = framework.framework_id
        described = sum(task.info.size for task in framework.tasks.values())
        assert self.descriptions.of(framework_id) == described
        assert self.verdicts.of(framework_id) == sum(map(verdict_size, framework.verdicts.values()))
        ended = sum(task.state.is_terminal for task in framework.tasks.values())
        assert framework.ended == ended
        for task_id, task in framework.tasks.items():
            assert task_id not in framework.spent
            assert not (task.is_undecided and (task.is_orphan or task.is_charged))
            agent = self.agents.get(task.agent_id)
            if task.is_orphan:
                assert task.state.is_terminal
                assert agent is None or (framework.framework_id, task_id) not in agent.tasks
            else:
                assert agent is not None
                assert agent.tasks[framework.framework_id, task_id] is task
        if framework.state is FrameworkState.REMOVED:
            assert framework.tasks


def _charge(task: Task) -> Charge:
    return task.framework_id, task.role, task.info.resources


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 20
