"""The one way an agent's state changes: an event in, what must be done out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from croupier.agent.core import events as ev
from croupier.agent.core.effects import Checkpoint, Effect
from croupier.agent.core.events import Event, Now
from croupier.agent.core.on_health import on_health_checked, on_out_of_room
from croupier.agent.core.on_life import on_adopted, on_begun, on_vanished
from croupier.agent.core.on_session import (
    on_connected,
    on_disconnected,
    on_heard,
    on_registered,
    on_removed,
)
from croupier.agent.core.on_task import (
    on_exited,
    on_kill,
    on_launch,
    on_launch_failed,
    on_not_started,
    on_started,
    on_stop_asked,
)
from croupier.agent.core.on_update import on_acknowledge, on_due, on_resend
from croupier.agent.core.records import PositionRecord
from croupier.agent.core.state import AgentState


def step(state: AgentState, event: Event, now: Now) -> list[Effect]:
    """Apply one event and say what must be done, in order."""
    effects = list(_handle(state, event, now))
    if state.is_position_new and any(isinstance(each, Checkpoint) for each in effects):
        assert state.position is not None
        # Durable with what follows from it, so before a task starts; by itself it is not worth a
        # commit.
        effects.insert(0, Checkpoint(PositionRecord(state.position), lazy=True))
        state.is_position_new = False
    return effects


def _handle(state: AgentState, event: Event, now: Now) -> Iterator[Effect]:
    match event:
        case ev.Launch():
            return on_launch(state, event, now)
        case ev.Acknowledge(framework_id, task_id, sequence):
            return on_acknowledge(state, (framework_id, task_id), sequence, now)
        case ev.Started(key, pid):
            return on_started(state, key, pid, now)
        case ev.Exited():
            return on_exited(state, event, now)
        case ev.LaunchFailed():
            return on_launch_failed(state, event, now)
        case ev.NotStarted(key):
            return on_not_started(state, key, now)
        case ev.Kill():
            return on_kill(state, event, now)
        case ev.Due():
            return on_due(state, now)
        case ev.Resend(framework_id):
            return on_resend(state, framework_id, now)
        case _:
            return _handle_rare(state, event, now)


def _handle_rare(
    state: AgentState,
    event: ev.Begun
    | ev.OutOfRoom
    | ev.HealthChecked
    | ev.Connected
    | ev.Disconnected
    | ev.Heard
    | ev.Registered
    | ev.Removed
    | ev.Adopted
    | ev.Vanished
    | ev.StopAsked,
    now: Now,
) -> Iterator[Effect]:
    match event:
        case ev.Connected(session):
            return on_connected(state, session, now)
        case ev.Disconnected(session):
            return on_disconnected(state, session)
        case ev.Heard():
            return on_heard(state, event)
        case ev.Registered():
            return on_registered(state, event)
        case ev.Removed():
            return on_removed(state)
        case ev.Begun():
            return on_begun(state, now)
        case ev.Adopted(key, pid):
            return on_adopted(state, key, pid, now)
        case ev.Vanished():
            return on_vanished(state, event, now)
        case ev.OutOfRoom():
            return on_out_of_room(state, now)
        case ev.HealthChecked():
            return on_health_checked(state, event, now)
        case ev.StopAsked():
            return on_stop_asked(state, now)
        case _:
            assert_never(event)
