"""A master's core with simulated agents and frameworks, in virtual time.

`World` keeps the effects of every step. It runs `check_state` after each step, so every test that
uses it also asserts every invariant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count

from croupier.master.allocator import Allocator, Rules
from croupier.master.core import calls
from croupier.master.core.effects import Close, Effect, Happened, Save, Send, SessionId
from croupier.master.core.events import (
    AgentReported,
    AgentTask,
    AllocationDue,
    FrameworkCalled,
    Register,
    SessionEnded,
    Subscribe,
    TimePassed,
)
from croupier.master.core.messages import Offered, Placed, Subscribed, ToAgent, ToFramework, Updated
from croupier.master.core.records import ForgetTask, MasterRecord, Record, TaskRecord, task_key
from croupier.master.core.registry import Registry
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.master.core.state_recovery import recover_state
from croupier.master.core.step import Event, step
from croupier.model.access import AGENT_USER
from croupier.model.agent_orders import LaunchTask
from croupier.model.attributes import parse_attributes
from croupier.model.demand import Demand
from croupier.model.devices import Device, DeviceRequest, Inventory
from croupier.model.errors import CroupierError
from croupier.model.executor import ExecutorSpec
from croupier.model.gang import ANY_AGENTS, GangMember, GangPlacement
from croupier.model.ids import AgentId, FrameworkId, OfferId, Role, TaskId
from croupier.model.isolation import Usage, known_features
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from croupier.model.task import Command, Reason, Source, TaskInfo, TaskState, TaskStatus
from croupier.model.task_group import TaskGroup, parse_part
from croupier.model.verdict import Verdict
from croupier.model.volume import Volume, VolumeMount
from tests.harness.invariants import check_state

# Names the masters of a world that restarts; the first is CLUSTER-1.
CLUSTER = "c"


class World:
    """Drives a `State` and records its effects."""

    def __init__(
        self,
        weights: Mapping[str, int] | None = None,
        settings: Settings | None = None,
        rules: Rules | None = None,
        state: State | None = None,
    ) -> None:
        """Create an empty cluster; `weights` are in thousandths."""
        roles = {Role(role): RoleSettings(weight) for role, weight in (weights or {}).items()}
        allocator = Allocator(rules=rules, roles=roles)
        self.state = state or State("m", settings or Settings(), allocator)
        self.now = 0.0
        self.sent: dict[SessionId, list[ToFramework | ToAgent]] = {}
        self.closed: dict[SessionId, CroupierError | None] = {}
        self.facts: list[object] = []
        self.saved: list[Record] = []
        self.ledger = {
            task_key(task.framework_id, task.task_id): task.record()
            for framework in self.state.frameworks.values()
            for task in framework.tasks.values()
        }
        self._sessions = count(1)
        self._seqs: dict[SessionId, int] = {}

    def do(self, event: Event, allocate: bool = True) -> list[Effect]:
        """Step once, and then run passes until every agent is settled."""
        effects = self._step(event)
        while allocate and self.state.allocator.has_dirty_agents:
            effects += self._step(AllocationDue())
        return effects

    def _step(self, event: Event) -> list[Effect]:
        effects = step(self.state, event, self.now)
        for effect in effects:
            match effect:
                case Send(session, message):
                    self.sent.setdefault(session, []).append(message)
                case Close(session, error):
                    self.closed[session] = error
                case Happened(fact):
                    self.facts.append(fact)
                case Save(record):
                    self._save(record)
        check_state(self.state)
        self.check_ledger()
        return effects

    def _save(self, record: Record) -> None:
        self.saved.append(record)
        match record:
            case TaskRecord():
                self.ledger[task_key(record.framework_id, record.task_id)] = record
            case ForgetTask():
                del self.ledger[task_key(record.framework_id, record.task_id)]
            case _:
                pass

    def check_ledger(self) -> None:
        """Assert that the saved tasks equal those in the state."""
        known = 0
        for framework in self.state.frameworks.values():
            for task in framework.tasks.values():
                entry, record = (
                    self.ledger[task_key(task.framework_id, task.task_id)],
                    task.record(),
                )
                if record.kill is not None and record.kill[1] is Reason.FRAMEWORK_REMOVED:
                    # This kill is saved with the framework.
                    record = replace(record, kill=entry.kill)
                if task.state.is_terminal:
                    # The core drops long text at once; the record keeps it until its next change.
                    entry = replace(entry, info=entry.info.slimmed())
                assert entry == record
                known += 1
        done = sum(entry.is_acknowledged for entry in self.ledger.values())
        unseen = sum(
            len(ids) for each in self.state.frameworks.values() for ids in each.retained.values()
        )
        assert done == unseen
        assert len(self.ledger) == known + done

    def registry(self) -> Registry:
        """Return the saved records."""
        registry = Registry()
        for record in (MasterRecord(CLUSTER, self.state.epoch), *self.saved):
            registry.apply(record)
        return registry

    def restart(self) -> None:
        """Fail over to the next master; every session ends."""
        master_id = f"{CLUSTER}-{self.state.epoch + 1}"
        self.state = self._recovered(master_id, self.registry())
        check_state(self.state)
        self.check_ledger()

    def check_recovery(self) -> None:
        """Check the state with which the next master would lead now."""
        # Nobody leads with it, so no event log of it is begun.
        recovered = World._recovered(self, f"{CLUSTER}-{self.state.epoch + 1}", self.registry())
        check_state(recovered)

    def _recovered(self, master_id: str, registry: Registry) -> State:
        allocator = Allocator(roles=self.state.initial_roles)
        return recover_state(registry, master_id, self.state.settings, allocator, self.now)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and handle every deadline on the way."""
        end = self.now + seconds
        while (at := self.state.next_deadline()) is not None and at <= end:
            self.now = max(self.now, at)
            self.do(TimePassed())
        self.now = end

    # Agents.

    def agent(
        self,
        resources: str,
        hostname: str = "host",
        attributes: str = "",
        agent_id: str = "",
        tasks: tuple[AgentTask, ...] = (),
        allocate: bool = True,
        features: str = "",
        default_user: str = AGENT_USER,
        lines_up: bool = False,
        incomplete: bool = False,
        volumes: tuple[Volume, ...] = (),
        devices: tuple[Device, ...] = (),
    ) -> SessionId:
        """Register an agent and return its session; `features` are joined by commas."""
        session = SessionId(next(self._sessions))
        named = Inventory(devices).total
        event = Register(
            session,
            AgentId(agent_id),
            hostname,
            Resources.parse(resources) + named,
            parse_attributes(attributes),
            tasks=tasks,
            features=known_features((*features.split(","), *(("devices",) if devices else ()))),
            default_user=default_user,
            lines_up=lines_up,
            incomplete=incomplete,
            volumes=volumes,
            devices=devices,
        )
        self.do(event, allocate)
        return session

    def agent_id(self, session: SessionId) -> AgentId:
        """Return the id of the agent on this session."""
        peer = self.state.peers[session]
        agent_id: AgentId = getattr(peer, "agent_id")  # noqa: B009 - either kind of peer
        return agent_id

    def report(
        self,
        session: SessionId,
        framework_id: str,
        task_id: str,
        state: TaskState,
        sequence: int,
        agent_id: str = "",
        time_ms: int = 0,
        reason: Reason = Reason.NONE,
        code: int | None = None,
        usage: Usage | None = None,
    ) -> None:
        """Send one status update from the agent."""
        status = TaskStatus(
            FrameworkId(framework_id),
            TaskId(task_id),
            AgentId(agent_id) or self.agent_id(session),
            state,
            Source.EXECUTOR,
            reason,
            sequence=sequence,
            time_ms=time_ms,
            exit_code=code,
            usage=usage,
        )
        self.do(AgentReported(session, (status,)))

    def finish(self, session: SessionId, framework_id: str, task_id: str) -> None:
        """Have a task run and finish."""
        self.report(session, framework_id, task_id, TaskState.RUNNING, 1)
        self.report(session, framework_id, task_id, TaskState.FINISHED, 2)

    # Frameworks.

    def framework(
        self,
        role: str = "*",
        demand: str = "",
        count: int | None = None,
        framework_id: str = "",
        client_id: str = "c1",
        name: str = "f",
        failover_timeout_s: float = 600.0,
        allocate: bool = True,
        suppressed: bool = False,
        offer_lease_s: float = 0.0,
        roles: tuple[str, ...] = (),
        demands: tuple[Demand, ...] = (),
        suppressed_roles: tuple[str, ...] = (),
    ) -> SessionId:
        """Subscribe a framework and return its session; `roles` and `demands` are for several."""
        session = SessionId(next(self._sessions))
        display = (Demand(Resources.parse(demand), count),) if demand else demands
        event = Subscribe(
            session,
            FrameworkId(framework_id),
            name,
            tuple(map(Role, roles or (role,))),
            client_id,
            failover_timeout_s,
            offer_lease_s,
            display,
            suppressed,
            suppressed_roles=tuple(map(Role, suppressed_roles)),
        )
        self.do(event, allocate)
        return session

    def framework_id(self, session: SessionId) -> FrameworkId:
        """Return the id of the framework on this session."""
        subscribed = [m for m in self.sent.get(session, ()) if isinstance(m, Subscribed)]
        return subscribed[-1].framework_id

    def call(
        self, session: SessionId, call: calls.Call, seq: int | None = None, allocate: bool = True
    ) -> Verdict:
        """Make a call and return its verdict."""
        if seq is None:
            seq = self._seqs.get(session, 0) + 1
            self._seqs[session] = seq
        self.do(FrameworkCalled(session, seq, call), allocate)
        verdicts = [m for m in self.sent[session] if isinstance(m, Verdict) and m.seq == seq]
        return verdicts[-1]

    def offers(self, session: SessionId) -> list[Offered]:
        """Return the outstanding offers of this session."""
        return [
            message
            for message in self.sent.get(session, ())
            if isinstance(message, Offered) and message.offer_id in self.state.offers
        ]

    def accept(
        self, session: SessionId, *tasks: TaskInfo, offers: Sequence[str] | None = None
    ) -> Verdict:
        """Accept the named offers, or the first outstanding one."""
        ids = [self.offers(session)[0].offer_id] if offers is None else offers
        return self.call(session, calls.Accept(tuple(OfferId(i) for i in ids), tasks))

    def decline(self, session: SessionId, refuse_s: float | None = None) -> None:
        """Decline every outstanding offer."""
        ids = tuple(offer.offer_id for offer in self.offers(session))
        if ids:
            self.call(session, calls.Decline(ids, refuse_s))

    def end_session(self, session: SessionId) -> None:
        """End the session."""
        self.do(SessionEnded(session, "the stream broke"))

    def updates(self, session: SessionId) -> list[TaskStatus]:
        """Return the updates that were sent on this session."""
        messages = self.sent.get(session, ())
        batches = [m.statuses for m in messages if isinstance(m, Updated | Placed)]
        return [status for statuses in batches for status in statuses]

    def launches(self, session: SessionId) -> list[TaskInfo]:
        """Return the tasks that this agent was ordered to launch."""
        return [m.task for m in self.sent.get(session, ()) if isinstance(m, LaunchTask)]


def make_task(task_id: str, resources: str = "cpus:1;mem:1GB", shell: str = "true") -> TaskInfo:
    """Return a small task."""
    return TaskInfo(TaskId(task_id), Command(shell=shell), Resources.parse(resources))


def with_executor(task: TaskInfo, executor_id: str = "") -> TaskInfo:
    """Return a task as one in that executor, or as an executor itself."""
    if executor_id:
        return replace(task, command=Command(), executor_id=TaskId(executor_id))
    return replace(task, executor=ExecutorSpec())


def with_volumes(task: TaskInfo, named: str) -> TaskInfo:
    """Return a task with volumes: `v1,v2@ROLE`, each under its own name."""
    mounts = []
    for each in named.split(",") if named else ():
        volume_id, _, role = each.partition("@")
        mounts.append(VolumeMount(volume_id, volume_id, role=role))
    return replace(task, volumes=tuple(mounts))


def in_gang(
    gang_id: str,
    *tasks: TaskInfo,
    parts: Sequence[str] = (),
    placement: GangPlacement = ANY_AGENTS,
    restarts: int = 0,
) -> tuple[TaskInfo, ...]:
    """Return tasks as the members of a gang; those beyond `parts` are plain members."""
    named = (*parts, *["member"] * len(tasks))
    member = GangMember(gang_id, 0, len(tasks), placement=placement, restarts=restarts)
    return tuple(
        replace(task, gang=replace(member, rank=rank, part=parse_part(named[rank])))
        for rank, task in enumerate(tasks)
    )


def with_devices(task: TaskInfo, asked: str) -> TaskInfo:
    """Return a task that asks for devices: `any`, or a TYPE/TOPOLOGY of which one may be empty."""
    what, _, same = asked.removeprefix("any").partition("/")
    return replace(task, devices=DeviceRequest("gpus", what, same)) if asked else task


def devices_of(text: str) -> tuple[Device, ...]:
    """Return GPUs: `g0:a100:0,g1::1*4` are g0, an a100 in nvlink group 0, and g1 with 4 slots."""
    found = []
    for each in text.split(",") if text else ():
        named, _, slots = each.partition("*")
        device_id, what, group = named.split(":")
        groups = (("nvlink", group),) if group else ()
        found.append(Device(device_id, "gpus", what, 81920, groups, int(slots or 1)))
    return tuple(found)


def in_group(group_id: str, task: TaskInfo, part: str = "member") -> TaskInfo:
    """Return a task as one of a group."""
    return replace(task, group=TaskGroup(group_id, parse_part(part)))
