"""The start of the agent: it recovers the tasks of its earlier life."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from croupier.agent.core.effects import Adopt, Checkpoint, Effect, Force, Signal, Spawn
from croupier.agent.core.events import Adopted, Exited, Now, Vanished
from croupier.agent.core.limits import limit_completion
from croupier.agent.core.on_session import choose_agent_id, register_when_ready
from croupier.agent.core.on_task import begin_killing, end_void, on_exited, on_not_started
from croupier.agent.core.records import ForgetTask, UpdateRecord, VoidRecord
from croupier.agent.core.state import AgentState
from croupier.agent.core.status_updates import Cause, change_state, end_task
from croupier.agent.core.tasks import Adopting, Running, Starting
from croupier.model.task import Reason, Source, TaskState

# More updates than any task makes in a life of the agent.
LOST_NUMBERS = 1_000
SECRETS_LOST = "the agent restarted before it started the task, and stores no secrets"


def on_agent_started(state: AgentState, now: Now) -> Iterator[Effect]:
    """Choose an id if there is none, and look for the runs of an earlier life."""
    if not state.agent_id:
        yield from choose_agent_id(state)
    if state.incomplete:
        yield from _skip_lost_numbers(state, now)
    for key in sorted(state.to_forget):
        yield Checkpoint(ForgetTask(*key))
    for key in state.to_void:
        yield Checkpoint(VoidRecord(*key))
    state.to_forget.clear()
    state.to_void.clear()
    yield from register_when_ready(state, now)
    for key, task in state.tasks.items():
        if isinstance(task.phase, Adopting):
            yield Adopt(key, task.phase.run)
    for key, void in state.voided.items():
        yield Adopt(key, void.run)


def _skip_lost_numbers(state: AgentState, now: Now) -> Iterator[Effect]:
    """Record that records were lost, and give each task's status a number never used before.

    Records of an earlier loss may be lost as well, so the numbers come from the clock.
    """
    # The recorded boot id stays: it must still show whether the machine was rebooted.
    yield Checkpoint(replace(state.record, boot_id=state.recorded_boot_id))
    for task in state.tasks.values():
        sequence = max(task.updates.sequence + LOST_NUMBERS, now.wall_ms)
        task.status = replace(task.status, sequence=sequence)
        task.updates.restore(task.status)
        yield Checkpoint(UpdateRecord(task.status))


def on_adopted(state: AgentState, event: Adopted, now: Now) -> Iterator[Effect]:
    """Take over the live process of a task; its records may lag behind."""
    key, pid = event.key, event.pid
    void = state.voided.get(key)
    if void is not None:
        state.set_void(key, Running(void.run, pid))
        yield Signal(key, pid, Force.KILL)
        return
    task = state.tasks[key]
    phase = task.phase
    assert isinstance(phase, Adopting)
    running = Running(phase.run, pid)
    # The status that the earlier life recorded last, at the start at the earliest.
    recorded_ms = task.status.time_ms
    if task.state is TaskState.STARTING:
        cause = Cause(Source.EXECUTOR)
        yield from change_state(state, task, running, TaskState.RUNNING, now, cause)
    else:
        state.set_phase(task, running)
    if phase.kill is not None:
        yield from begin_killing(state, task, running, phase.kill, now)
    else:
        age_s = (now.wall_ms - recorded_ms) / 1000 if event.age_s is None else event.age_s
        limit_completion(state, task, now, age_s)
    yield from register_when_ready(state, now)


def on_vanished(state: AgentState, event: Vanished, now: Now) -> Iterator[Effect]:
    """End or start a task that has no process and no recorded end.

    The agent had accepted the task, so it starts one that never ran. Only complete records prove
    that: a lost record might say that the task has ended. A task with secrets is not started: its
    values were in the memory of the earlier life only.
    """
    key = event.key
    if key in state.voided:
        yield from end_void(state, key, now)
        return
    task = state.tasks[key]
    phase = task.phase
    assert isinstance(phase, Adopting)
    if state.was_rebooted:
        cause = Cause(reason=Reason.AGENT_REBOOTED, message="the machine was rebooted")
        yield from end_task(state, task, TaskState.GONE, now, cause)
    elif event.never_started and state.incomplete:
        message = "the agent has lost records; how the task ended is unknown"
        cause = Cause(reason=Reason.EXECUTOR_TERMINATED, message=message)
        yield from end_task(state, task, TaskState.GONE, now, cause)
    elif not event.never_started or task.state is not TaskState.STARTING:
        yield from on_exited(state, Exited(key, unknown=True, ending=event.ending), now)
    elif phase.kill is not None:
        yield from on_not_started(state, key, now)
    elif task.info.command.secrets:
        cause = Cause(reason=Reason.AGENT_RESTARTED, message=SECRETS_LOST)
        yield from end_task(state, task, TaskState.DROPPED, now, cause)
    else:
        state.set_phase(task, Starting(phase.run))
        yield Spawn(key, phase.run, again=True)
    yield from register_when_ready(state, now)
