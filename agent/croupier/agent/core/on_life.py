"""The agent's own life: it begins, takes over what an earlier one has left, and has room or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from croupier.agent.core.effects import Adopt, Checkpoint, Effect, Force, Signal, Spawn
from croupier.agent.core.events import Exited, Now, Vanished
from croupier.agent.core.on_session import choose_agent_id, settle
from croupier.agent.core.on_task import end_void, on_exited, on_not_started, press
from croupier.agent.core.records import ForgetTask, UpdateRecord, VoidRecord
from croupier.agent.core.state import AgentState
from croupier.agent.core.status_updates import end, say
from croupier.agent.core.tasks import Key
from croupier.model.task import Reason, Source, TaskState

# More updates than any task makes in a life of the agent.
LOST_NUMBERS = 1_000


def on_agent_started(state: AgentState, now: Now) -> Iterator[Effect]:
    """The first thing: have a name, and look for what an earlier life has left."""
    if not state.agent_id:
        yield from choose_agent_id(state)
    if state.incomplete:
        yield from _make_good(state, now)
    for key in sorted(state.to_forget):
        yield Checkpoint(ForgetTask(*key))
    for key in state.to_void:
        yield Checkpoint(VoidRecord(*key))
    state.to_forget.clear()
    state.to_void.clear()
    yield from settle(state, now)
    for key in state.tasks:
        if key in state.adopting:
            yield Adopt(key, state.tasks[key].run)
    for key, void in state.voided.items():
        yield Adopt(key, void.run)


def _make_good(state: AgentState, now: Now) -> Iterator[Effect]:
    """Records were lost: remember that, and take no number for an update that was used before.

    The numbers that an earlier loss has led to may be lost as well, so these go by the clock.
    """
    # Whether the machine was started anew is still to be told by the boot id of the records.
    yield Checkpoint(replace(state.record, boot_id=state.recorded_boot_id))
    for task in state.tasks.values():
        assert task.status is not None
        sequence = max(task.updates.sequence + LOST_NUMBERS, now.wall_ms)
        status = replace(task.status, sequence=sequence)
        task.updates.restore(status)
        task.status = status
        yield Checkpoint(UpdateRecord(status))


def on_adopted(state: AgentState, key: Key, pid: int, now: Now) -> Iterator[Effect]:
    """The process of a task lives; what is recorded of it may lag behind."""
    state.adopting.discard(key)
    void = state.voided.get(key)
    if void is not None:
        void.pid = pid
        yield Signal(key, pid, Force.KILL)
        return
    task = state.tasks[key]
    task.pid = pid
    if task.state is TaskState.STARTING:
        yield from say(state, task, TaskState.RUNNING, now, source=Source.EXECUTOR)
    if task.kill is not None:
        yield from press(state, task, now)
    yield from settle(state, now)


def on_vanished(state: AgentState, event: Vanished, now: Now) -> Iterator[Effect]:
    """A task has no process, and no end is recorded.

    It was accepted: if nothing of it ever ran it is simply started. That can only be known
    where no record is missing, for one that is might say that the task had ended.
    """
    key = event.key
    state.adopting.discard(key)
    if key in state.voided:
        yield from end_void(state, key, now)
        return
    task = state.tasks[key]
    never_started = event.never_started and task.state is TaskState.STARTING
    if state.was_rebooted or (event.never_started and state.incomplete):
        reason, message = Reason.AGENT_REBOOTED, "the machine was started anew"
        if not state.was_rebooted:
            reason = Reason.EXECUTOR_TERMINATED
            message = "the agent has lost records; how the task ended is not known"
        yield from end(state, task, TaskState.GONE, now, reason=reason, message=message)
    elif not never_started:
        yield from on_exited(state, Exited(key, unknown=True), now)
    elif task.kill is not None:
        yield from on_not_started(state, key, now)
    else:
        yield Spawn(key, task.run, again=True)
    yield from settle(state, now)
