"""Recovery: from the records of a checkpoint to the state, and to the tasks of the earlier life."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from croupier.agent.core import records as r
from croupier.agent.core.effects import Adopt, Checkpoint, Effect, Spawn
from croupier.agent.core.events import Exited, Now, Vanished
from croupier.agent.core.on_group import apply_all_rules
from croupier.agent.core.on_session import choose_agent_id, register_when_ready
from croupier.agent.core.on_task import end_void, on_exited, on_not_started
from croupier.agent.core.state import NO_AGENT_ID, AgentState
from croupier.agent.core.status_updates import END_LOST, Cause, end_task, limit_completion
from croupier.agent.core.tasks import (
    Adopting,
    Ended,
    Executor,
    GroupKey,
    InExecutor,
    Key,
    KillOrder,
    LocalTask,
    Phase,
    Starting,
)
from croupier.model.errors import Conflict
from croupier.model.ids import AgentId
from croupier.model.resources import Resources
from croupier.model.store_position import StorePosition
from croupier.model.task import Reason, TaskState, TaskStatus

# Recorded in place of a position that was forgotten.
NOWHERE: Final = StorePosition(0, 0, "", 0)
# More updates than any task makes in a life of the agent.
LOST_NUMBERS = 1_000
SECRETS_LOST = "the agent restarted before it started the task, and stores no secrets"


def recovered(
    records: Iterable[r.Record],
    total: Resources,
    *,
    boot_id: str = "",
    life: str = "0",
    incomplete: bool = False,
    lenient: bool = False,
) -> AgentState:
    """Return the state before `AgentStarted`, from all durable records that were not replaced.

    `life` is unique to this run of the agent. If records are known to be lost (`incomplete`), tasks
    without a first record are left out; if `lenient`, such tasks mean that records were lost.
    Raises Conflict if a task has no first record and none is known to be lost, or if live tasks
    hold more than `total`.
    """
    state = AgentState.of(total, life=life)
    state.boot_id = boot_id
    groups: set[GroupKey] = set()
    for record in records:
        match record:
            case r.AgentRecord():
                state.agent_id = record.agent_id or state.agent_id
                state.recorded_boot_id = record.boot_id
                state.master_epoch = record.master_epoch
                state.incomplete = record.incomplete
                state.cluster = record.cluster
            case r.PositionRecord(position):
                state.position = None if position == NOWHERE else position
            case r.FrameworkRecord(framework_id, epoch):
                state.epochs.pop(framework_id, None)
                state.epochs[framework_id] = epoch
            case r.ForgetFramework(framework_id):
                state.epochs.pop(framework_id, None)
            case r.GroupRecord():
                groups.add((record.framework_id, record.group_id))
            case r.ForgetGroup():
                groups.discard((record.framework_id, record.group_id))
            case _ if _apply(state, record) or isinstance(record, r.ForgetTask):
                state.to_forget.discard(r.key_of(record))
            case _:
                state.to_forget.add(r.key_of(record))
    state.incomplete |= incomplete
    if state.position is not None:
        # The record of the agent itself may be lost.
        state.master_epoch = max(state.master_epoch, state.position.epoch)
    if state.to_forget and not (state.incomplete or lenient):
        framework_id, task_id = min(state.to_forget)
        raise Conflict(
            f"the first record of task {task_id} of {framework_id} is lost; --recover=best-effort"
            " continues without the task, --recover=cleanup ends all tasks"
        )
    state.incomplete |= bool(state.to_forget)
    if not state.incomplete:
        _drop_incomplete_groups(state, groups)
    _count_resources(state)
    state.to_forget_groups = groups - state.groups.keys()
    return state


def _drop_incomplete_groups(state: AgentState, complete: set[GroupKey]) -> None:
    """Forget live tasks of groups that were recorded in part: none was started.

    The master orders the launch of such a group again, since REGISTER lists none of its tasks.
    """
    for key, task in list(state.tasks.items()):
        if task.is_live and task.group is not None and task.group not in complete:
            del state.tasks[key]
            state.to_forget.add(key)


def identify(state: AgentState, given_id: AgentId, *, is_certified: bool) -> None:
    """Give the agent the id in its credential; empty if that names none.

    An earlier agent may have had the id, on a work dir that was lost: then tasks may have run that
    no record names. Raises Conflict if the records are of another agent, and the id cannot be
    changed.
    """
    if not given_id:
        return
    if state.agent_id and is_certified and state.agent_id != given_id:
        raise Conflict(
            f"the certificate is of agent {given_id}, and the work dir of agent {state.agent_id}:"
            " give that agent's certificate; or end the tasks in the work dir and let it forget"
            " the agent with croupier-agent --recover=cleanup"
        )
    if is_certified or not state.agent_id:
        state.given_id, state.is_certified = given_id, is_certified
    state.incomplete |= not state.agent_id


def forget_masters(state: AgentState) -> list[r.Record]:
    """Forget which masters, and which runs of frameworks, the agent has seen; return the records.

    A false master may have had numbers so high that true ones look older.
    """
    forgotten: list[r.Record] = [r.ForgetFramework(each) for each in state.epochs]
    state.epochs.clear()
    state.cluster, state.master_epoch, state.position = "", 0, None
    # The recorded boot id must still show whether the machine was rebooted.
    own = replace(state.record, boot_id=state.recorded_boot_id)
    return [own, r.PositionRecord(NOWHERE), *forgotten]


def incomplete(records: Iterable[r.Record]) -> r.AgentRecord:
    """Return the agent's own record, marked as incomplete, to replace a damaged checkpoint."""
    known = r.AgentRecord(NO_AGENT_ID, "", 0)
    for record in records:
        if isinstance(record, r.AgentRecord):
            known = record
    return replace(known, incomplete=True)


def _apply(state: AgentState, record: r.TaskFact) -> bool:
    """Apply a record to its task; return False if the task is unknown."""
    key = r.key_of(record)
    if isinstance(record, r.TaskRecord):
        # The agent's own record of its id may be lost.
        state.agent_id = record.first.agent_id
        phase: Phase = Adopting(record.run)
        if record.info.executor_id:
            # Its executor may have got it.
            phase = InExecutor(is_sent=True)
        task = state.tasks[key] = LocalTask(
            key[0], record.info, record.role, phase, record.first, proof=record.proof
        )
        _restore(task, record.first)
        return True
    if isinstance(record, r.ForgetTask):
        return (state.tasks.pop(key, None) or state.voided.pop(key, None)) is not None
    known = state.tasks.get(key)
    if known is None:
        return False
    match record:
        case r.UpdateRecord(status):
            _restore(known, status)
        case r.KillRecord(_, _, grace_ms, reason, message):
            if isinstance(known.phase, Adopting | InExecutor):
                known.phase = replace(known.phase, kill=KillOrder(reason, grace_ms, message))
        case r.AcknowledgedRecord(_, _, sequence):
            known.updates.acknowledge(sequence)
        case r.VoidRecord():
            del state.tasks[key]
            state.voided[key] = Adopting(known.run)
    return True


def _restore(task: LocalTask, status: TaskStatus) -> None:
    task.updates.restore(status)
    task.status = status
    if status.state.is_terminal:
        task.phase = Ended()
    elif isinstance(task.phase, Adopting) and task.state is TaskState.KILLING and not task.kill:
        # The record of the kill is lost, but the agent had obeyed it.
        task.phase = Adopting(task.run, KillOrder(status.reason, task.info.grace_ms))


def _count_resources(state: AgentState) -> None:
    """Count the resources of live tasks, drop ended ones without pending updates, and group all."""
    _void_tasks_of_earlier_ids(state)
    if state.incomplete:
        _void_overfull(state)
    _find_executors(state)
    held = Resources()
    ended: list[Key] = []
    for key, task in state.tasks.items():
        if task.is_live:
            held = held + task.info.resources
            state.live += 1
            state.adopting += isinstance(task.phase, Adopting)
        elif not task.updates.waiting:
            ended.append(key)
    for key in ended:
        del state.tasks[key]
    for key, task in state.tasks.items():
        if task.group is not None:
            state.groups.setdefault(task.group, {})[key] = None
    state.adopting += len(state.voided)
    if not held <= state.total:
        raise Conflict(
            f"the agent's tasks hold {held}, but it has {state.total} now; give it as much"
            " with --resources, or end the tasks with --recover=cleanup"
        )
    state.free = state.total - held


def _find_executors(state: AgentState) -> None:
    """Find the live executors and their tasks; forget tasks whose executor is lost.

    Such records are lost, or of an agent that was removed: the master ends what is not listed.
    """
    for key, task in state.tasks.items():
        if task.is_live and task.info.executor is not None:
            state.executors[key] = Executor(has_registered=True)
    for key, task in list(state.tasks.items()):
        if not isinstance(task.phase, InExecutor):
            continue
        assert task.executor_key is not None
        executor = state.executors.get(task.executor_key)
        if executor is None:
            del state.tasks[key]
            state.to_forget.add(key)
        else:
            executor.tasks[key] = None
            task.phase = replace(task.phase, may_have_ended=state.incomplete)


def _void_tasks_of_earlier_ids(state: AgentState) -> None:
    for key, task in list(state.tasks.items()):
        if task.status.agent_id == state.agent_id:
            continue
        if task.is_live:
            _void(state, key, task)
        else:
            del state.tasks[key]
            state.to_forget.add(key)


def _void_overfull(state: AgentState) -> None:
    """Void the oldest live tasks that do not fit: the records of their ends are lost."""
    free = state.total
    for key, task in reversed(list(state.tasks.items())):
        if not task.is_live:
            continue
        if task.info.resources <= free:
            free -= task.info.resources
        else:
            _void(state, key, task)


def _void(state: AgentState, key: Key, task: LocalTask) -> None:
    """Make a task void; one without a process is forgotten."""
    del state.tasks[key]
    if isinstance(task.phase, InExecutor):
        state.to_forget.add(key)
    else:
        state.voided[key] = Adopting(task.run)
        state.to_void.append(key)


def on_agent_started(state: AgentState, now: Now) -> Iterator[Effect]:
    """Choose an id if there is none, and look for the runs of an earlier life."""
    if not state.agent_id:
        yield from choose_agent_id(state)
    if state.incomplete:
        yield from _skip_lost_numbers(state, now)
    for key in sorted(state.to_forget):
        yield Checkpoint(r.ForgetTask(*key))
    for key in state.to_void:
        yield Checkpoint(r.VoidRecord(*key))
    # The records of groups may be among the lost ones.
    for group in state.groups if state.incomplete else ():
        yield Checkpoint(r.GroupRecord(*group))
    for group in sorted(state.to_forget_groups):
        yield Checkpoint(r.ForgetGroup(*group))
    state.to_forget.clear()
    state.to_void.clear()
    state.to_forget_groups.clear()
    yield from apply_all_rules(state, now)
    yield from register_when_ready(state, now)
    for key, task in state.tasks.items():
        if isinstance(task.phase, Adopting):
            yield Adopt(key, task.phase.run)
        elif isinstance(task.phase, InExecutor) and state.runs_unkilled(task):
            limit_completion(state, task, now, (now.wall_ms - task.status.time_ms) / 1000)
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
        yield Checkpoint(r.UpdateRecord(task.status))


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
        cause = Cause(reason=Reason.EXECUTOR_TERMINATED, message=END_LOST)
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
        if (executor := state.executors.get(key)) is not None:
            executor.has_registered = False
        yield Spawn(key, phase.run, again=True)
    yield from register_when_ready(state, now)
