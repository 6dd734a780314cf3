"""`step`: the only function that changes an agent's state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from croupier.agent.core import events as ev
from croupier.agent.core import (
    on_executor,
    on_group,
    on_health,
    on_line,
    on_session,
    on_task,
    on_update,
    recovery,
)
from croupier.agent.core.effects import Checkpoint, Effect
from croupier.agent.core.events import AgentEvent, Event, Now
from croupier.agent.core.records import PositionRecord
from croupier.agent.core.state import AgentState
from croupier.model.agent_orders import (
    AcknowledgeUpdate,
    ExecutorMessage,
    KillTask,
    LaunchGroup,
    LaunchTask,
    RecallTask,
    ResendUpdates,
    SetVolume,
)

_Order = KillTask | AcknowledgeUpdate | RecallTask | ResendUpdates | ExecutorMessage | SetVolume


def step(state: AgentState, event: Event, now: Now) -> list[Effect]:
    """Apply one event and return its effects, in order."""
    effects = list(_handle(state, event, now))
    effects += on_group.apply_rules(state, now)
    if state.is_position_new and any(isinstance(each, Checkpoint) for each in effects):
        assert state.position is not None
        # The position is durable before a task starts, with the next record; alone it is not worth
        # a commit.
        effects.insert(0, Checkpoint(PositionRecord(state.position), lazy=True))
        state.is_position_new = False
    return effects


def _handle(state: AgentState, event: Event, now: Now) -> Iterator[Effect]:
    match event:
        case LaunchTask():
            return on_task.on_launch(state, ev.TaskLaunch(event), now)
        case ev.TaskLaunch():
            return on_task.on_launch(state, event, now)
        case LaunchGroup(orders):
            return on_group.on_launch_group(state, tuple(map(ev.TaskLaunch, orders)), now)
        case ev.GroupLaunch(launches):
            return on_group.on_launch_group(state, launches, now)
        case _ if isinstance(event, _Order):
            return _handle_order(state, event, now)
        case ev.ExecutorRegistered() | ev.ExecutorLeft() | ev.ExecutorUpdated() | ev.ExecutorSaid():
            return on_executor.on_event(state, event, now)
        case ev.Started() | ev.Adopted():
            return on_task.on_started(state, event, now)
        case ev.Exited():
            return on_task.on_exited(state, event, now)
        case ev.LaunchFailed():
            return on_task.on_launch_failed(state, event, now)
        case ev.LimitExceeded():
            return on_task.on_limit_exceeded(state, event, now)
        case ev.NotStarted(key):
            return on_task.on_not_started(state, key, now)
        case ev.Prepared():
            return on_task.on_prepared(state, event, now)
        case _:
            return _handle_agent_event(state, event, now)


def _handle_order(state: AgentState, order: _Order, now: Now) -> Iterator[Effect]:
    match order:
        case KillTask():
            return on_task.on_kill(state, order, now)
        case AcknowledgeUpdate(framework_id, task_id, sequence):
            return on_update.on_acknowledge(state, (framework_id, task_id), sequence, now)
        case RecallTask(framework_id, task_id):
            return on_line.on_recall(state, (framework_id, task_id))
        case ResendUpdates(framework_id):
            return on_update.on_resend(state, framework_id, now)
        case ExecutorMessage():
            return on_executor.on_message(state, order)
        case SetVolume():
            return on_session.on_volume(state, order)
        case _:
            assert_never(order)


def _handle_agent_event(state: AgentState, event: AgentEvent, now: Now) -> Iterator[Effect]:
    match event:
        case ev.Connected(session):
            return on_session.on_connected(state, session, now)
        case ev.Disconnected(session):
            return on_session.on_disconnected(state, session)
        case ev.MasterSeen():
            return on_session.on_master_seen(state, event)
        case ev.Registered():
            return on_session.on_registered(state, event)
        case ev.Removed():
            return on_session.on_removed(state)
        case ev.AgentStarted():
            return recovery.on_agent_started(state, now)
        case ev.Vanished():
            return recovery.on_vanished(state, event, now)
        case ev.DeadlinePassed():
            return on_update.on_deadline_passed(state, now)
        case ev.DiskFull():
            return on_health.on_disk_full(state, now)
        case ev.HealthChecked():
            return on_health.on_health_checked(state, event, now)
        case ev.StopRequested():
            return on_task.on_stop_requested(state, now)
        case _:
            assert_never(event)
