"""The history of a run: agents, frameworks and tasks, from the lines of a log.

Lines are read independently, so the beginning of the log may be missing. Times are seconds on the
master's clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from croupier.master.core import calls
from croupier.master.core.effects import SessionId
from croupier.master.core.events import FrameworkCalled, Register, Subscribe
from croupier.master.core.role_commands import UpdateRoles
from croupier.master.core.roles import changed_settings
from croupier.master.eventlog import lines
from croupier.model.attributes import Attributes, facts_of
from croupier.model.demand import Demand
from croupier.model.ids import AgentId, FrameworkId, OfferId, Role, TaskId
from croupier.model.isolation import NO_FEATURES, Features
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from croupier.model.task import TERMINAL, Reason, TaskState
from croupier.sim.replay.demand_history import DemandHistory, DemandKey, TrackedDemand, demand_key

# Offers are leases of at most a minute.
_OFFER_S = 120.0
# States of tasks that were lost.
_LOST = frozenset({"LOST", "DROPPED", "GONE", "GONE_BY_OPERATOR", "UNREACHABLE"})
_ENDED = frozenset(state.name for state in TERMINAL) | {TaskState.UNREACHABLE.name}

TaskKey = tuple[FrameworkId, TaskId]


@dataclass(slots=True)
class AgentStay:
    """An agent with one total of resources; `left` is None if it stayed to the end."""

    agent_id: AgentId
    hostname: str
    total: Resources
    attributes: Attributes
    came: float
    left: float | None = None
    features: Features = NO_FEATURES


@dataclass(slots=True)
class TaskRun:
    """A task that ran, or still does.

    Attributes:
        wanted_at: the time since which it was wanted; None if there is none.
        demand: the demand that it counted for, if any was declared.
        was_lost: whether the cluster ended it, not the task or its framework.
    """

    framework_id: FrameworkId
    role: Role
    agent_id: AgentId
    resources: Resources
    launched_at: float
    wanted_at: float | None = None
    demand: Demand | None = None
    ended_at: float | None = None
    was_lost: bool = False


@dataclass(frozen=True, slots=True)
class Queued:
    """A submitted task that waits for an agent since `at`."""

    at: float
    role: Role
    demand: Demand


@dataclass(slots=True)
class FrameworkStay:
    """A framework, from its first subscription to its removal.

    Attributes:
        demands: its demand, or the demand when it left.
        endless: the endless demands, with the time of their declaration.
    """

    framework_id: FrameworkId
    name: str
    roles: tuple[Role, ...]
    came: float
    demands: DemandHistory
    left: float | None = None
    endless: dict[DemandKey, tuple[float, Demand]] = field(default_factory=dict)

    def note_endless(self, tracked: TrackedDemand) -> None:
        """Record that a demand is endless."""
        demand = tracked.demand
        self.endless.setdefault(demand_key(tracked.role, demand), (tracked.since, demand))


class History:
    """Collects the history, line by line.

    Attributes:
        head: the head of the first file.
        end: the time of the last line.
        roles: the settings of roles at the beginning.
        role_changes: an operator's changes of roles, with their times.
        agents, frameworks, tasks: in order of time, as `role_changes` are.
    """

    def __init__(self, head: lines.Head) -> None:
        self.head = head
        self.end = head.at
        self.roles: dict[Role, RoleSettings] = dict(head.roles) if head.part == 1 else {}
        if head.registry is not None:
            self.roles |= {each.role: each.settings for each in head.registry.roles.values()}
        self.role_changes: list[tuple[float, Role, RoleSettings]] = []
        self.agents: list[AgentStay] = []
        self.frameworks: list[FrameworkStay] = []
        self.tasks: list[TaskRun] = []
        self.events = 0
        self._set: dict[Role, RoleSettings] = dict(self.roles)
        self._agents: dict[AgentId, AgentStay] = {}
        self._frameworks: dict[FrameworkId, FrameworkStay] = {}
        self._sessions: dict[SessionId, FrameworkStay] = {}
        self._running: dict[TaskKey, TaskRun] = {}
        self._offers: dict[OfferId, tuple[float, Role]] = {}
        self._queued: dict[TaskKey, Queued] = {}

    @property
    def start(self) -> float:
        """The time of the first line."""
        return self.head.at

    def take(self, line: lines.Line) -> None:
        """Add one more line. Only the oldest file's description of the state counts."""
        if isinstance(line, lines.LogEntry):
            self.end = line.at
            self.events += 1
            self._take_entry(line)
        elif self.events == 0:
            self._take_known(line)

    def finish(self) -> None:
        """Complete the history after the last line."""
        for stay in self._frameworks.values():
            _note_insatiable(stay)

    # The state at the beginning.

    def _take_known(self, line: lines.Line) -> None:
        match line:
            case lines.KnownRole(role, settings):
                self.roles[role] = self._set[role] = settings
            case lines.KnownAgent():
                self._agent_came(line.agent_id, line, self.start)
            case lines.KnownFramework(framework_id):
                stay = self._framework_came(framework_id, line.name, line.roles, self.start)
                if line.session:
                    self._sessions[SessionId(line.session)] = stay
                self._declare(stay, line.demands, self.start)
            case lines.KnownOffer(offer_id):
                self._offers[offer_id] = (self.start, line.role)
            case lines.KnownTask():
                run = TaskRun(
                    line.framework_id, line.role, line.agent_id, line.resources, line.since
                )
                self._launched((line.framework_id, line.task_id), run)
            case _:
                pass

    # Events.

    def _take_entry(self, entry: lines.LogEntry) -> None:
        match entry.event:
            case Register():
                self._on_register(entry, entry.event)
            case Subscribe():
                self._on_subscribe(entry, entry.event)
            case FrameworkCalled():
                self._on_called(entry, entry.event)
            case UpdateRoles():
                self._on_roles(entry, entry.event)
            case _:
                pass
        for outcome in entry.outcomes:
            self._on_outcome(entry.at, outcome)

    def _on_register(self, entry: lines.LogEntry, event: Register) -> None:
        agent_id = _outcome_id(entry.outcomes, "agent")
        if agent_id is None:
            return
        self._agent_came(AgentId(agent_id), event, entry.at)
        for report in event.tasks:
            key = (report.framework_id, report.task.task_id)
            if report.latest.state.is_terminal or key in self._running:
                continue
            stay = self._frameworks.get(report.framework_id)
            if stay is None:
                roles = (report.role or Role("*"),)
                stay = self._framework_came(report.framework_id, "", roles, entry.at)
            role = report.role or stay.roles[0]
            run = TaskRun(
                report.framework_id, role, AgentId(agent_id), report.task.resources, entry.at
            )
            self._launched(key, run)

    def _on_subscribe(self, entry: lines.LogEntry, event: Subscribe) -> None:
        framework_id = _outcome_id(entry.outcomes, "framework")
        if framework_id is None:
            return
        known = self._frameworks.get(FrameworkId(framework_id))
        stay = known or self._framework_came(
            FrameworkId(framework_id), event.name, event.roles, entry.at
        )
        stay.name, stay.roles = event.name, event.roles
        self._sessions[event.session] = stay
        if not event.demands:
            stay.demands.quiet(entry.at)
        self._declare(stay, event.demands, entry.at)

    def _on_called(self, entry: lines.LogEntry, event: FrameworkCalled) -> None:
        stay = self._sessions.get(event.session)
        if stay is None:
            return
        match event.call:
            case calls.Accept():
                self._on_accept(entry, stay, event.call)
            case calls.Submit():
                self._on_submit(entry, stay, event.call)
            case calls.UpdateDemand(demands):
                self._declare(stay, demands, entry.at)
            case calls.Decline() | calls.Suppress() | calls.Revive():
                stay.demands.quiet(entry.at)
            case _:
                pass

    def _on_accept(self, entry: lines.LogEntry, stay: FrameworkStay, call: calls.Accept) -> None:
        agents = {
            outcome[2]: AgentId(outcome[4]) for outcome in entry.outcomes if outcome[0] == "task"
        }
        for task in call.tasks:
            if task.task_id not in agents:
                continue
            _, role = self._offers.get(call.offer_ids[0], (0.0, stay.roles[0]))
            agent = self._agents.get(agents[task.task_id])
            facts = agent and facts_of(
                agent.hostname, agent.attributes, agent.features, agents[task.task_id]
            )
            wanted = stay.demands.launch(role, task.resources, facts or {})
            place = (stay.framework_id, role, agents[task.task_id], task.resources)
            run = TaskRun(*place, entry.at, *wanted)
            self._launched((stay.framework_id, task.task_id), run)

    def _on_submit(self, entry: lines.LogEntry, stay: FrameworkStay, call: calls.Submit) -> None:
        role = stay.roles[0] if call.role is None else call.role
        taken = {outcome[2] for outcome in entry.outcomes if outcome[0] == "task"}
        for task in call.tasks:
            if task.task_id in taken:
                demand = Demand(task.resources, 1, call.placement.constraints, role=role)
                self._queued[stay.framework_id, task.task_id] = Queued(entry.at, role, demand)

    def _on_placed(self, key: TaskKey, agent_id: AgentId, at: float) -> None:
        queued = self._queued.pop(key)
        place = (key[0], queued.role, agent_id, queued.demand.unit)
        self._launched(key, TaskRun(*place, at, queued.at, queued.demand))

    def _on_roles(self, entry: lines.LogEntry, event: UpdateRoles) -> None:
        changed = {outcome[1] for outcome in entry.outcomes if outcome[0] == "role"}
        if not changed:
            return
        for role, settings in changed_settings(event.changes, self._set, self.head.roles).items():
            if role in changed:
                self._set[role] = settings
                self.role_changes.append((entry.at, role, settings))

    def _on_outcome(self, at: float, outcome: lines.Outcome) -> None:
        match outcome:
            case ("offer", offer_id, _, role, _):
                self._offers[OfferId(offer_id)] = (at, Role(role))
                self._forget_offers(at)
            case ("task", framework_id, task_id, "STAGING", agent_id, _) if (
                key := (FrameworkId(framework_id), TaskId(task_id))
            ) in self._queued:
                self._on_placed(key, AgentId(agent_id), at)
            case ("task", framework_id, task_id, state, _, reason) if state in _ENDED:
                self._queued.pop((FrameworkId(framework_id), TaskId(task_id)), None)
                was_lost = state in _LOST or reason == Reason.PREEMPTED.name
                self._ended((FrameworkId(framework_id), TaskId(task_id)), at, was_lost)
            case ("agent-left", agent_id, "unreachable" | "stopped" | "gone"):
                self._agent_left(AgentId(agent_id), at)
            case ("framework-left", framework_id, "removed"):
                stay = self._frameworks.pop(FrameworkId(framework_id), None)
                if stay is not None:
                    stay.left = at
                    _note_insatiable(stay)
            case _:
                pass

    # Changes.

    def _agent_came(self, agent_id: AgentId, came: lines.KnownAgent | Register, at: float) -> None:
        total, attributes, features = came.total, came.attributes, came.features
        before = self._agents.get(agent_id)
        if before is not None:
            if (before.total, before.attributes, before.features) == (total, attributes, features):
                return
            before.left = at
        stay = AgentStay(agent_id, came.hostname, total, attributes, at, features=features)
        self._agents[agent_id] = stay
        self.agents.append(stay)

    def _agent_left(self, agent_id: AgentId, at: float) -> None:
        stay = self._agents.pop(agent_id, None)
        if stay is not None:
            stay.left = at
        for key, run in list(self._running.items()):
            if run.agent_id == agent_id:
                self._ended(key, at, was_lost=True)

    def _framework_came(
        self, framework_id: FrameworkId, name: str, roles: tuple[Role, ...], at: float
    ) -> FrameworkStay:
        stay = FrameworkStay(framework_id, name, roles, at, DemandHistory(at))
        self._frameworks[framework_id] = stay
        self.frameworks.append(stay)
        return stay

    def _declare(self, stay: FrameworkStay, demands: tuple[Demand, ...], at: float) -> None:
        stay.demands.declare(demands, stay.roles[0], at)
        for tracked in stay.demands:
            if tracked.endless_since is not None:
                stay.note_endless(tracked)

    def _launched(self, key: TaskKey, run: TaskRun) -> None:
        self._running[key] = run
        self.tasks.append(run)

    def _ended(self, key: TaskKey, at: float, was_lost: bool) -> None:
        run = self._running.pop(key, None)
        if run is not None:
            run.ended_at, run.was_lost = at, was_lost

    def _forget_offers(self, at: float) -> None:
        """Forget at most two expired offers each time, which keeps up at little cost."""
        for offer_id in list(islice(self._offers, 2)):
            if self._offers[offer_id][0] < at - _OFFER_S:
                del self._offers[offer_id]


def _note_insatiable(stay: FrameworkStay) -> None:
    for tracked in stay.demands:
        if tracked.is_insatiable:
            stay.note_endless(tracked)


def _outcome_id(did: Iterable[lines.Outcome], what: str) -> str | None:
    return next((outcome[1] for outcome in did if len(outcome) > 1 and outcome[0] == what), None)
