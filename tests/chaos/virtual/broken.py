"""The broken functions of mutants: each replaces one function of a daemon or of the SDK."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from croupier.agent.core import on_executor, on_session
from croupier.agent.core import on_task as agent_on_task
from croupier.agent.core.effects import Checkpoint, Forget, ReturnTasks, RunTask, Spawn, ToExecutor
from croupier.agent.core.events import (
    ExecutorEvent,
    ExecutorRegistered,
    ExecutorUpdated,
    Exited,
    Now,
    TaskLaunch,
    Vanished,
)
from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import Due, LocalTask, PendingUpdates
from croupier.master.allocator.agent_allocation import AgentAllocation
from croupier.master.allocator.charges import Charges
from croupier.master.allocator.dealt import Fit, Rejection
from croupier.master.allocator.eligibility import Eligibility
from croupier.master.allocator.holds import Holds
from croupier.master.allocator.node import Leaf
from croupier.master.allocator.past_use import PastUse
from croupier.master.allocator.pooled_agent import PooledAgent
from croupier.master.allocator.tree import Tree
from croupier.master.core import (
    hold_charges,
    launches,
    on_hold,
    on_requeue,
    on_sync,
    on_task,
    state_recovery,
    task_moves,
    verdicts,
)
from croupier.master.core import on_executor as master_on_executor
from croupier.master.core.agents import Agent
from croupier.master.core.deadlines import HoldReview
from croupier.master.core.effects import Effect, Happened, Save, Send, Step
from croupier.master.core.events import Register
from croupier.master.core.frameworks import Framework
from croupier.master.core.holds import Hold, HoldState
from croupier.master.core.messages import MessageArrived
from croupier.master.core.records import ForgetTask, HoldRecord, Record, TaskRecord
from croupier.master.core.registry import Registry
from croupier.master.core.reservations import NewReservation, Reservation
from croupier.master.core.state import State
from croupier.master.core.tasks import Task, TaskHold
from croupier.master.core.unit_checks import UnitVerdicts
from croupier.master.core.usage import UsageLedger
from croupier.model.agent_orders import ExecutorMessage
from croupier.model.devices import DeviceNeed, Inventory, Slots, slots_of
from croupier.model.ids import AgentId, FrameworkId, HoldId, Role
from croupier.model.task import Reason, TaskInfo, TaskState, TaskStatus
from croupier.sdk.core.updates import UpdateBook, UpdateDecision
from tests.chaos.virtual.agent import AgentProcess
from tests.chaos.virtual.agent_session import AgentSession


def requeues_early(state: State, task: Task, status: TaskStatus) -> bool:
    is_ending = status.state is TaskState.KILLING and status.reason is Reason.PREEMPTED
    is_new = task.agent_id == status.agent_id and status.sequence > task.sequence
    return is_ending and is_new and on_requeue.is_preempted(state, task)


def returns_early(state: State, task: Task, status: TaskStatus) -> bool:
    is_ending = status.state is TaskState.KILLING and status.reason is Reason.GANG_ENDED
    may_return = is_ending and on_requeue.starts_again(state, task, TaskState.KILLED)
    return may_return or on_requeue.ends_run(state, task, status)


def numbers_from_1(_: int) -> PendingUpdates:
    return PendingUpdates()


_CHOOSE_DEVICES = Inventory.choose


def chooses_used_slots(self: Inventory, _free: Slots, need: DeviceNeed) -> Slots | None:
    return _CHOOSE_DEVICES(self, slots_of(self.total), need)


def registers_no_devices(event: Register) -> None:
    return None


def nothing(*_: object) -> Iterator[Effect]:
    yield from ()


# The agent.


def sends_again(
    state: AgentState, child: LocalTask, event: ExecutorRegistered, now: Now
) -> Iterator[Any]:
    yield from _SYNCHRONISE(state, child, event, now)
    if child.is_live and child.kill is None:
        yield ToExecutor(event.connection, RunTask(child.info))


def acknowledges_unrecorded(state: AgentState, event: ExecutorEvent, now: Now) -> Iterator[Any]:
    for effect in _ON_EXECUTOR(state, event, now):
        if not (isinstance(event, ExecutorUpdated) and isinstance(effect, Checkpoint)):
            yield effect


def forgets_unacknowledged(state: AgentState, event: Exited, now: Now) -> Iterator[Any]:
    yield from _ON_EXITED(state, event, now)
    task = state.tasks.get(event.key)
    if task is not None and not task.is_live:
        state.deadlines.cancel((Due.RESEND, event.key))
        del state.tasks[event.key]
        yield Forget(event.key)


def launches_again(state: AgentState, event: TaskLaunch, now: Now) -> Iterator[Any]:
    key = (event.order.framework_id, event.order.task.task_id)
    if state.is_live(key):
        state.runs += 1
        yield Spawn(key, f"{state.life}-{state.runs}")
    yield from _ON_LAUNCH(state, event, now)


def wants_each_process(self: AgentState, key: Any) -> bool:
    return True


def adopts_nothing(self: AgentProcess, key: Any, run: str) -> Vanished:
    return Vanished(key, "the agent did not look", never_started=False)


def sends_nothing(self: AgentSession, *_: object) -> None:
    """Drop the message."""


def starts_anew(self: AgentProcess, key: Any, run: str) -> Vanished:
    return Vanished(key, "the agent did not look", never_started=True)


def invents_exit(self: AgentProcess, key: Any, run: str) -> Any:
    known = self.machine.runs.get(run)
    if known is not None and not known.lives and not known.vanished:
        return Exited(key, 0)
    return _ADOPT(self, key, run)


def acknowledges_all(self: PendingUpdates, sequence: int) -> int:
    number = len(self.waiting) if self.waiting and self.waiting[0].sequence <= sequence else 0
    if number:
        self.waiting.clear()
    return number


def recalls_nothing(state: AgentState, key: Any) -> Iterator[Any]:
    yield from ()


def returns_and_keeps(state: AgentState, key: Any) -> Iterator[Any]:
    if key in state.line and state.session is not None:
        yield ReturnTasks(state.session, (key,))


def keeps_line(state: AgentState, session: int) -> Iterator[Any]:
    line = dict(state.line)
    yield from _ON_DISCONNECTED(state, session)
    state.line.update(line)


def ends_no_others(state: AgentState, *_: object) -> Iterator[Any]:
    state.ended_in_groups.clear()
    yield from ()


def drops_no_group(*_: object) -> None:
    pass


_ON_DISCONNECTED = on_session.on_disconnected
_ON_EXITED, _ON_LAUNCH = agent_on_task.on_exited, agent_on_task.on_launch
_SYNCHRONISE, _ON_EXECUTOR = on_executor._synchronise, on_executor.on_event
_ADOPT = AgentProcess.adopt

# The master.


def releases_twice(state: State, task: Task) -> None:
    was_active = task.is_active
    _RELEASE(state, task)
    if was_active:
        amount = task.info.resources
        state.allocator.charges.release(task.framework_id, task.role, task.agent_id, amount)


def passes_and_releases(state: State, ended: Task, task: Task, now: float) -> None:
    task_moves.leave_line(state, task)
    agent_id = ended.agent_id
    task_moves.release_task(state, ended)
    task_moves.place_task(state, task, agent_id, now)


def decides_alone(self: UnitVerdicts, framework: Framework, unit: Any, *checks: Any) -> list[Any]:
    launched = []
    for task in unit:
        launched += _DECIDE_UNIT(self, framework, [task], *checks)
    return launched


def settles_no_gangs(state: State, _now: float) -> Iterator[Effect]:
    state.ended_members.clear()
    yield from ()


def charges_first(state: State, task: Task, *rest: Any) -> None:
    others = state.frameworks[task.framework_id].groups.get(task.info.group_id, {})
    if next(iter(others), task.task_id) == task.task_id:
        _CHARGE_LAUNCH(state, task, *rest)


_DECIDE_UNIT = UnitVerdicts.decide
_CHARGE_LAUNCH = launches.launch_charges


def forgets_line(state: State, task: Task, _now: float) -> None:
    task_moves.leave_line(state, task)
    task.hold_as(TaskHold.RELEASED)


def charges_none(state: State) -> None:
    pass


def charges_late(state: State, agent_id: AgentId, tasks: Iterable[Task]) -> None:
    listed = list(tasks)
    for task in listed:
        hold_nothing(task)
    _CHARGE(state, agent_id, listed)


def releases_late(state: State, task: Task) -> None:
    hold_nothing(task)
    _RELEASE(state, task)


def hold_nothing(task: Task) -> None:
    if task.is_absent:
        task.hold_as(TaskHold.RELEASED)


def same_id(self: State, kind: str) -> str:
    return f"{self.master_id}-{kind}1"


def recalls_no_kill(state: State, entry: TaskRecord, *rest: Any) -> None:
    _RECALL(state, replace(entry, kill=None), *rest)


def recalls_no_answers(state: State, entry: TaskRecord, *rest: Any) -> None:
    _RECALL(state, entry, *rest)
    state.frameworks[entry.framework_id].accepted.clear()


def recalls_no_ends(state: State, entry: TaskRecord, *rest: Any) -> None:
    _RECALL(state, replace(entry, master_status=None), *rest)


def forgets_nothing(self: Registry, record: Record) -> None:
    if not isinstance(record, ForgetTask):
        _APPLY(self, record)


def forgets_verdicts(state: State, framework: Framework, seq: float) -> list[Any]:
    framework.verdicts.clear()
    return _SEEN(state, framework, seq)


def gone_when_silent(state: State, task: Task, new: TaskState, *rest: Any) -> Iterator[Effect]:
    if new is TaskState.UNREACHABLE:
        yield from on_task.end(state, task, TaskState.GONE, Reason.AGENT_REMOVED, "", 0.0)
    else:
        yield from on_task.set_status(state, task, new, *rest)


def ends_what_is_missing(
    state: State, unit: list[Task], incomplete: bool, now: float
) -> Iterator[Effect]:
    yield from _ON_MISSING(state, unit, True, now)


def launches_all(state: State, agent: Any, event: Any, now: float) -> Iterator[Step]:
    yield from _SYNC(state, agent, replace(event, tasks=()), now)


def recovers_withheld(registry: Registry, *rest: Any) -> State:
    agents = {
        agent_id: replace(record, drain=None, deactivated=False)
        for agent_id, record in registry.agents.items()
    }
    return _RECOVERED(replace(registry, agents=agents), *rest)


def recovers_gone(registry: Registry, *rest: Any) -> State:
    agents = {id_: record for id_, record in registry.agents.items() if not record.gone}
    return _RECOVERED(replace(registry, agents=agents), *rest)


def filters_submitted(self: Eligibility, leaf: Leaf, pending: Any) -> Fit | Rejection:
    found = _CHECK_SHAPE(self, leaf, pending)
    if isinstance(found, Fit) and pending.shape is not None:
        return self.refused(leaf, pending.demand.unit.carve(found.room, found.units)) or found
    return found


def never(*_: object) -> bool:
    return False


def as_it_is(status: Any) -> Any:
    return status


_RECOVERED, _RECALL = state_recovery.recover_state, state_recovery.recover_task
_CHARGE, _RELEASE = task_moves.charge_tasks, task_moves.release_task
_APPLY, _SEEN = Registry.apply, verdicts.mark_seen
_CHECK_SHAPE = Eligibility._check_shape
_ON_MISSING, _SYNC = on_sync._on_missing, on_sync.sync

# The SDK.


def shows_again(self: UpdateBook, status: Any) -> UpdateDecision:
    decided = _DECIDE(self, status)
    return UpdateDecision.SHOW if decided is UpdateDecision.ACKNOWLEDGE else decided


def carries_nothing(*_: object) -> list[Any]:
    return []


_DECIDE = UpdateBook.decide


# Usage.


def counts_gap_twice(self: UsageLedger, wall_ms: int) -> None:
    began_ms = self._began_ms
    _COUNT_GAP(self, wall_ms)
    self._began_ms -= began_ms - self._began_ms


_COUNT_GAP = UsageLedger._count_gap


# Messages.


def tells_another(state: State, agent: Agent, message: Any, now: float) -> Iterator[Effect]:
    others = [session for session, peer in state.peers.items() if isinstance(peer, Framework)]
    for effect in _ON_SAID(state, agent, message, now):
        match effect:
            case Send(_, MessageArrived() as arrived):
                yield Send(others[0], arrived)
            case _:
                yield effect


def passes_to_newest(state: AgentState, message: ExecutorMessage) -> Iterator[Any]:
    key = next(reversed(state.executors), (message.framework_id, message.task_id))
    yield from _ON_MESSAGE(state, ExecutorMessage(*key, message.data))


def drops_uncounted(*call: Any) -> Iterator[Effect]:
    for effect in _SEND_MESSAGE(*call):
        if not isinstance(effect, Happened):
            yield effect


_ON_SAID, _SEND_MESSAGE = master_on_executor.on_said, master_on_executor.send_message
_ON_MESSAGE = on_executor.on_message

# Holds.


def deals_holds_again(
    tree: Tree, leaf: Leaf, scalars: Mapping[str, int], units: int = 1, owner: Leaf | None = None
) -> int:
    return _DEAL(tree, leaf, scalars, units)


def keeps_order(tree: Tree, past: Mapping[Role, PastUse]) -> None:
    tree.past = dict(past)
    for role in past:
        if role in tree.roles:
            tree._apply(tree.roles[role])


def serves_all(agent: PooledAgent, leaf: Leaf) -> bool:
    return True


def deals_to_all(visit: AgentAllocation) -> Leaf | None:
    return visit._tree.neediest(visit._is_eligible)


def keeps_expired(state: State, hold: Hold, now: float) -> Iterator[Effect]:
    state.deadlines.set(HoldReview(hold.hold_id), now + 60.0)
    yield Save(hold.record(now))


def frees_tasks(state: State, hold: Hold) -> list[Task]:
    held = [
        (task.framework_id, task.role, task.held.scalars)
        for task in state.agents[hold.agent_id].tasks.values()
        if task.hold_id == hold.hold_id and task.is_active
    ]
    tasks = _REMOVE_HOLD(state, hold)
    for framework_id, role, scalars in held:
        leaf = state.allocator._members.leaf(framework_id, role)
        state.allocator._tree.charge(leaf, scalars, -1, tasks=0)
    return tasks


def keeps_parts(
    charges: Charges, framework_id: FrameworkId, role: Role, place: AgentId, *rest: Any, **more: Any
) -> None:
    if charges._agents.agents[place].owner is None:
        _RELEASE_CHARGE(charges, framework_id, role, place, *rest, **more)


# Volumes.


def deals_volumes(holds: Holds, *args: Any, is_kept: bool = False) -> None:
    _MAKE_HOLD(holds, *args)


def removes_no_volume(agent: Agent, hold: Hold) -> Iterator[Effect]:
    if hold.state is not HoldState.ENDED:
        yield from _ORDER_VOLUME(agent, hold)


def lists_no_volumes(agent: Agent, event: Register) -> Iterator[Effect]:
    return iter(())


def places_anywhere(
    state: State, framework: Framework, task: TaskInfo, role: Role, _: AgentId | None = None
) -> None:
    _CHECK_VOLUMES(state, framework, task, role)


def asks_no_owner(
    state: State, framework: Framework, task: TaskInfo, role: Role, _: AgentId | None = None
) -> AgentId | None:
    holds = (state.holds.get(HoldId(mount.volume_id)) for mount in task.volumes)
    return next((hold.agent_id for hold in holds if hold is not None), None)


def recalls_no_volume(state: State, record: HoldRecord, now: float) -> None:
    _RECOVER_HOLD(state, replace(record, volume=False), now)


def keeps_reserved(state: State, reservation: Reservation) -> None:
    reservation.asked.clear()


def nothing_is_reserved(state: State, wanted: NewReservation) -> tuple[AgentId, ...]:
    return ()


_MAKE_HOLD, _ORDER_VOLUME = Holds.make, on_hold._order_volume
_CHECK_VOLUMES, _RECOVER_HOLD = on_hold.check_volumes, state_recovery._recover_hold
_DEAL, _REMOVE_HOLD = Tree.deal, hold_charges.remove_hold
_RELEASE_CHARGE = Charges.release
