"""Sessions with a master: one at a time, each opened with everything the agent knows."""

from __future__ import annotations

from collections.abc import Iterator

from croupier.agent.core.effects import (
    Checkpoint,
    Effect,
    Force,
    Forget,
    SendRegister,
    Signal,
)
from croupier.agent.core.events import MasterSeen, Now, Registered
from croupier.agent.core.records import ForgetFramework, ForgetTask, VoidRecord
from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import Void
from croupier.model.ids import AgentId


def choose_agent_id(state: AgentState) -> Iterator[Effect]:
    """Be somebody whom no master has heard of, and remember it before any does.

    If a master gave the name, and its word were lost, the master would deal an agent of
    which nobody ever hears again, and launch tasks on it that never end.
    """
    state.names += 1
    number = f".{state.names}" if state.names > 1 else ""
    state.agent_id = AgentId(f"A{state.life}{number}")
    yield Checkpoint(state.record)


def on_connected(state: AgentState, session: int, now: Now) -> Iterator[Effect]:
    """A stream is open: register with it."""
    assert state.session is None
    state.joining = session
    yield from settle(state, now)


def settle(state: AgentState, now: Now) -> Iterator[Effect]:
    """Do what waits until it is known what has become of all runs of an earlier life.

    That is to remember the machine's run, by which a start of it is known; and, once no void
    task holds anything either, to register with the session that waits.
    """
    if state.adopting:
        return
    if state.recorded_boot_id != state.boot_id:
        state.recorded_boot_id = state.boot_id
        yield Checkpoint(state.record)
    if state.joining is None or state.voided:
        return
    state.session, state.joining = state.joining, None
    for task in state.tasks.values():
        # REGISTER carries what waits, so this is the first time it is sent here.
        if task.updates.waiting:
            state.deadlines.set(("resend", task.key), now.at + task.updates.restart_resending())
    yield SendRegister(state.session)


def on_disconnected(state: AgentState, session: int) -> Iterator[Effect]:
    """A stream is over: nobody is told anything until there is another."""
    if session == state.joining:
        state.joining = None
    elif session == state.session:
        state.session = None
        for key in state.tasks:
            state.deadlines.cancel(("resend", key))
    yield from ()


def on_master_seen(state: AgentState, event: MasterSeen) -> Iterator[Effect]:
    """A master spoke that is to be obeyed: from now on an older one is not.

    A store that an operator has gone on with although it was older has counted fewer runs of the
    frameworks' programs than this agent has heard of.
    """
    if event.position is not None:
        known = state.position
        if known is not None and event.position.generation > known.generation:
            for framework_id in state.epochs:
                yield Checkpoint(ForgetFramework(framework_id))
            state.epochs.clear()
        state.position, state.is_position_new = event.position, True
    if event.cluster != state.cluster or event.master_epoch > state.master_epoch:
        state.master_epoch, state.cluster = event.master_epoch, event.cluster
        yield Checkpoint(state.record)


def on_registered(state: AgentState, event: Registered) -> Iterator[Effect]:
    """The master has taken the agent in, and knows whether its records are all there."""
    agent_id = event.agent_id
    state.takes_refusals = event.takes_refusals
    if agent_id == state.agent_id and not state.incomplete:
        return
    # Only an agent without an id is given one, and it has no tasks yet.
    assert agent_id == state.agent_id or not state.tasks
    state.agent_id = agent_id
    state.incomplete = False
    yield Checkpoint(state.record)


def on_removed(state: AgentState) -> Iterator[Effect]:
    """Everything is void: end all tasks, forget them, and come back as somebody new."""
    state.incomplete = False
    yield from choose_agent_id(state)
    tasks = list(state.tasks.values())
    state.tasks.clear()
    state.live, state.free = 0, state.total
    state.session = state.joining = None
    for task in tasks:
        state.deadlines.cancel(("resend", task.key))
        state.deadlines.cancel(("kill", task.key))
        if task.is_live:
            state.voided[task.key] = Void(task.run, task.pid)
            yield Checkpoint(VoidRecord(*task.key))
            if task.pid and task.key not in state.adopting:
                yield Signal(task.key, task.pid, Force.KILL)
        else:
            yield Checkpoint(ForgetTask(*task.key))
            yield Forget(task.key)
