"""`step`: the only function that changes an agent's state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from croupier.agent.core import events as ev
from croupier.agent.core.effects import Checkpoint, Effect
from croupier.agent.core.events import AgentEvent, Event, Now
from croupier.agent.core.on_health import on_disk_full, on_health_checked
from croupier.agent.core.on_life import on_adopted, on_agent_started, on_vanished
from croupier.agent.core.on_session import (
    on_connected,
    on_disconnected,
    on_master_seen,
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
    on_stop_requested,
)
from croupier.agent.core.on_update import on_acknowledge, on_deadline_passed, on_resend
from croupier.agent.core.records import PositionRecord
from croupier.agent.core.state import AgentState
from croupier.model.agent_orders import AcknowledgeUpdate, KillTask, LaunchTask, ResendUpdates


def step(state: AgentState, event: Event, now: Now) -> list[Effect]:
    """Apply one event and return its effects, in order."""
    effects = list(_handle(state, event, now))
    if state.is_position_new and any(isinstance(each, Checkpoint) for each in effects):
        assert state.position is not None
        # Durable with its consequences, and so before a task starts; alone not worth a commit.
        effects.insert(0, Checkpoint(PositionRecord(state.position), lazy=True))
        state.is_position_new = False
    return effects


def _handle(state: AgentState, event: Event, now: Now) -> Iterator[Effect]:
    match event:
        case LaunchTask():
            return on_launch(state, event, now)
        case ev.LaunchIntoSandbox(order):
            return on_launch(state, order, now, has_sandbox=True)
        case AcknowledgeUpdate(framework_id, task_id, sequence):
            return on_acknowledge(state, (framework_id, task_id), sequence, now)
        case ev.Started(key, pid):
            return on_started(state, key, pid, now)
        case ev.Exited():
            return on_exited(state, event, now)
        case ev.LaunchFailed():
            return on_launch_failed(state, event, now)
        case ev.NotStarted(key):
            return on_not_started(state, key, now)
        case KillTask():
            return on_kill(state, event, now)
        case ResendUpdates(framework_id):
            return on_resend(state, framework_id, now)
        case _:
            return _handle_agent_event(state, event, now)


def _handle_agent_event(state: AgentState, event: AgentEvent, now: Now) -> Iterator[Effect]:
    match event:
        case ev.Connected(session):
            return on_connected(state, session, now)
        case ev.Disconnected(session):
            return on_disconnected(state, session)
        case ev.MasterSeen():
            return on_master_seen(state, event)
        case ev.Registered():
            return on_registered(state, event)
        case ev.Removed():
            return on_removed(state)
        case ev.AgentStarted():
            return on_agent_started(state, now)
        case ev.Adopted(key, pid):
            return on_adopted(state, key, pid, now)
        case ev.Vanished():
            return on_vanished(state, event, now)
        case ev.DeadlinePassed():
            return on_deadline_passed(state, now)
        case ev.DiskFull():
            return on_disk_full(state, now)
        case ev.HealthChecked():
            return on_health_checked(state, event, now)
        case ev.StopRequested():
            return on_stop_requested(state, now)
        case _:
            assert_never(event)
