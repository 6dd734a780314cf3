"""Sessions with a master: one at a time, each opened with everything that the agent knows."""

from __future__ import annotations

from collections.abc import Iterator
from signal import SIGKILL

from croupier.agent.core import effects as fx
from croupier.agent.core.events import MasterSeen, Now, Registered
from croupier.agent.core.records import ForgetFramework, ForgetGroup, ForgetTask, VoidRecord
from croupier.agent.core.state import NO_AGENT_ID, AgentState
from croupier.agent.core.tasks import Due, Ended, InExecutor, Killing, Running, Starting
from croupier.model.agent_orders import SetVolume
from croupier.model.ids import AgentId


def choose_agent_id(state: AgentState) -> Iterator[fx.Effect]:
    """Choose an id that no master knows, and record it before any master learns it.

    If a master chose the id and its answer were lost, the master would offer an agent that does
    not exist, and launch tasks on it that never end. The id in the agent's certificate is the
    exception: the agent takes no other.
    """
    if state.given_id:
        state.agent_id = state.given_id
        if not state.is_certified:
            state.given_id = NO_AGENT_ID
    else:
        state.names += 1
        number = f".{state.names}" if state.names > 1 else ""
        state.agent_id = AgentId(f"A{state.life}{number}")
    yield fx.Checkpoint(state.record)


def on_connected(state: AgentState, session: int, now: Now) -> Iterator[fx.Effect]:
    """Register in the new session as soon as possible."""
    assert state.connection is None
    state.connection, state.has_registered = session, False
    yield from register_when_ready(state, now)


def register_when_ready(state: AgentState, now: Now) -> Iterator[fx.Effect]:
    """Register, once the fate of all runs of an earlier life is known.

    The agent then records the machine's boot, by which it recognises the next reboot. It
    registers only after every void task has ended.
    """
    if state.adopting:
        return
    if state.recorded_boot_id != state.boot_id:
        state.recorded_boot_id = state.boot_id
        yield fx.Checkpoint(state.record)
    if state.connection is None or state.has_registered or state.voided:
        return
    state.has_registered = True
    for task in state.tasks.values():
        # REGISTER carries the unacknowledged updates.
        if task.updates.waiting:
            state.deadlines.set((Due.RESEND, task.key), now.at + task.updates.restart_resending())
    yield fx.SendRegister(state.connection)


def on_disconnected(state: AgentState, session: int) -> Iterator[fx.Effect]:
    """Send nothing until there is another session."""
    if session == state.connection:
        if state.has_registered:
            for key in state.tasks:
                state.deadlines.cancel((Due.RESEND, key))
        state.connection, state.has_registered = None, False
        # REGISTER of the next session tells that they have not started.
        state.line.clear()
    yield from ()


def on_master_seen(state: AgentState, event: MasterSeen) -> Iterator[fx.Effect]:
    """Record a newer master.

    If an operator continued with an older store, its framework epochs may be below those that the
    agent has recorded. The agent then forgets the recorded epochs.
    """
    if event.position is not None:
        known = state.position
        if known is not None and event.position.generation > known.generation:
            for framework_id in state.epochs:
                yield fx.Checkpoint(ForgetFramework(framework_id))
            state.epochs.clear()
        state.position, state.is_position_new = event.position, True
    if event.cluster != state.cluster or event.master_epoch > state.master_epoch:
        state.master_epoch, state.cluster = event.master_epoch, event.cluster
        yield fx.Checkpoint(state.record)


def on_registered(state: AgentState, event: Registered) -> Iterator[fx.Effect]:
    """Record that the master has registered the agent and was informed of lost records."""
    agent_id = event.agent_id
    if agent_id == state.agent_id and not state.incomplete:
        return
    # The master chooses an id only for an agent that has none, and such an agent has no tasks.
    assert agent_id == state.agent_id or not state.tasks
    state.agent_id = agent_id
    state.incomplete = False
    yield fx.Checkpoint(state.record)


def on_removed(state: AgentState) -> Iterator[fx.Effect]:
    """Kill and forget all tasks, and choose another id."""
    state.incomplete = False
    yield from choose_agent_id(state)
    tasks, groups = list(state.tasks.values()), list(state.groups)
    for executor in state.executors.values():
        if executor.connection is not None:
            yield fx.CloseExecutor(executor.connection, "the agent was removed")
    state.executors.clear()
    state.tasks.clear()
    state.groups.clear()
    state.line.clear()
    state.live, state.free = 0, state.total
    state.connection, state.has_registered = None, False
    for task in tasks:
        for due in Due:
            state.deadlines.cancel((due, task.key))
        if isinstance(task.phase, Ended | InExecutor):
            yield fx.Checkpoint(ForgetTask(*task.key))
            yield fx.Forget(task.key)
        else:
            state.voided[task.key] = task.phase
            yield fx.Checkpoint(VoidRecord(*task.key))
            if isinstance(task.phase, Running | Killing):
                yield fx.Signal(task.key, task.phase.pid, SIGKILL)
            elif isinstance(task.phase, Starting) and task.info.isolation.image:
                yield fx.CancelLaunch(task.key)
    for group in groups:
        yield fx.Checkpoint(ForgetGroup(*group))
        yield fx.ForgetGroup(group)


def on_volume(state: AgentState, order: SetVolume) -> Iterator[fx.Effect]:
    """Keep a volume, or remove it; the directory itself is the record of it."""
    if order.size:
        state.volumes.add(order.volume)
    else:
        state.volumes.discard(order.volume)
    yield order
