"""Sessions with a master: one at a time, each opened with everything the agent knows."""

from __future__ import annotations

from collections.abc import Iterator

from croupier.agent.core.effects import (
    Effect,
    Force,
    Forget,
    Introduce,
    KeepAgentId,
    Signal,
)
from croupier.agent.core.events import Now
from croupier.agent.core.state import NO_AGENT_ID, AgentState
from croupier.model.ids import AgentId


def on_connected(state: AgentState, session: int, now: Now) -> Iterator[Effect]:
    """A stream is open: register with it."""
    assert state.session is None
    state.joining = session
    yield from introduce(state, now)


def introduce(state: AgentState, now: Now) -> Iterator[Effect]:
    """Register with the session that waits for it, once no void task holds anything."""
    if state.joining is None or state.voided:
        return
    state.session, state.joining = state.joining, None
    for task in state.tasks.values():
        # REGISTER carries what waits, so this is the first time it is sent here.
        if task.updates.waiting:
            state.deadlines.set(("resend", task.key), now.at + task.updates.restart_resending())
    yield Introduce(state.session)


def on_disconnected(state: AgentState, session: int) -> Iterator[Effect]:
    """A stream is over: nobody is told anything until there is another."""
    if session == state.joining:
        state.joining = None
    elif session == state.session:
        state.session = None
        for key in state.tasks:
            state.deadlines.cancel(("resend", key))
    yield from ()


def on_registered(state: AgentState, agent_id: AgentId) -> Iterator[Effect]:
    """The master has taken the agent in."""
    if agent_id == state.agent_id:
        return
    # Only an agent without an id is given one, and it has no tasks yet.
    assert not state.tasks
    state.agent_id = agent_id
    yield KeepAgentId(agent_id)


def on_removed(state: AgentState) -> Iterator[Effect]:
    """Everything is void: end all tasks, forget them, and come back as somebody new."""
    state.agent_id = NO_AGENT_ID
    yield KeepAgentId(state.agent_id)
    tasks = list(state.tasks.values())
    state.tasks.clear()
    state.live, state.free = 0, state.total
    state.session = state.joining = None
    for task in tasks:
        state.deadlines.cancel(("resend", task.key))
        state.deadlines.cancel(("kill", task.key))
        if task.is_live and task.pid:
            state.voided[task.key] = task.pid
            yield Signal(task.key, task.pid, Force.MAKE)
        yield Forget(task.key)
