"""A framework's calls, and their verdicts.

Every call is decided in one step and answered by one verdict. A repeated call is answered from
memory and has no further effect.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterator, Sequence
from dataclasses import replace
from typing import assert_never

from croupier.master.core import calls, on_framework, on_task, verdicts
from croupier.master.core.deadlines import AgentTimeout
from croupier.master.core.effects import PAUSE, Close, Effect, Happened, Send, Step
from croupier.master.core.events import FrameworkCalled
from croupier.master.core.facts import CallAnswered, Outcome, UpdateAcknowledged
from croupier.master.core.frameworks import Framework
from croupier.master.core.on_accept import Decision, accept, checked_refusal, own_offers
from croupier.master.core.on_allocation import return_offer
from croupier.master.core.on_executor import send_message
from croupier.master.core.on_framework import own_roles
from croupier.master.core.on_hold import release
from croupier.master.core.on_submit import submit, withdraw
from croupier.master.core.state import State
from croupier.master.core.tasks import Task
from croupier.model import errors
from croupier.model.demand import check_demands
from croupier.model.ids import MAX_ID_BYTES, AgentId, HoldId, TaskId
from croupier.model.limits import MAX_NAMED, MAX_REASON, MAX_TASKS_PER_ACCEPT
from croupier.model.task import MASTER_SEQUENCE, Reason, TaskState, TaskStatus
from croupier.model.task_checks import check_grace
from croupier.model.verdict import OperationVerdict, TaskVerdict, Verdict

# A framework that has not marked more verdicts than this as seen does not read: disconnect it.
MAX_VERDICTS = 4096

# A handler yields effects and returns the verdicts on tasks and operations; it raises to refuse.
Handling = Generator[Step, None, Decision]


def on_call(state: State, event: FrameworkCalled, now: float) -> Iterator[Step]:
    """Decide a call, or repeat its verdict."""
    framework = state.peers.get(event.session)
    if not isinstance(framework, Framework):
        yield Close(event.session, errors.ProtocolViolation("the first call must be SUBSCRIBE"))
        return
    framework.last_received = now
    if isinstance(event.call, calls.Acknowledge | calls.Reconcile) and event.call.more:
        if event.seq > framework.last_seq:
            yield from _decide(state, framework, event, now)
        return
    if event.seq <= framework.last_seq:
        gone = errors.Conflict(f"the verdict on call {event.seq} is no longer known")
        yield Send(event.session, framework.verdicts.get(event.seq, Verdict(event.seq, gone)))
        return
    full = state.verdicts.is_full_for(framework.framework_id)
    if full or len(framework.verdicts) >= MAX_VERDICTS:
        message = f"{len(framework.verdicts)} verdicts were not marked as seen"
        yield Close(event.session, errors.TooSlow(message))
        yield from on_framework.disconnect(state, framework, message, now)
        return
    framework.last_seq = event.seq
    error: errors.CroupierError | None = None
    decision = Decision()
    try:
        before = framework.accepted.get(event.seq)
        if before is not None and isinstance(event.call, calls.Accept | calls.Submit):
            decision = _repeated(state, framework, event.call, event.seq, before)
        else:
            decision = yield from _decide(state, framework, event, now)
    except errors.CroupierError as refusal:
        error = errors.shortened(refusal)
        decision = _refused(event.call, error)
    verdict = Verdict(event.seq, error, *decision)
    verdicts.remember(state, framework, verdict)
    yield Send(event.session, verdict)
    if isinstance(event.call, calls.Teardown):
        yield Close(event.session, None)
    outcome: Outcome = "invalid" if error else "ok"
    name = calls.call_name(event.call)
    yield Happened(CallAnswered(framework.framework_id, name, outcome, str(error or "")))
    while state.verdicts.is_over:
        yield from _forget_verdicts(state, state.frameworks[state.verdicts.largest()], now)


def _forget_verdicts(state: State, framework: Framework, now: float) -> Iterator[Effect]:
    """Disconnect a framework and forget its verdicts: its calls cannot be repeated."""
    if framework.session is not None:
        message = f"{len(framework.verdicts)} large verdicts were not marked as seen"
        yield Close(framework.session, errors.TooSlow(message))
        yield from on_framework.disconnect(state, framework, message, now)
    yield from on_task.forget_all(
        framework, verdicts.mark_seen(state, framework, framework.last_seq)
    )


def _repeated(
    state: State,
    framework: Framework,
    call: calls.Accept | calls.Submit,
    seq: int,
    launched: Container[TaskId],
) -> Decision:
    """Return the verdicts of an earlier master, from the ledger."""
    refused = errors.Conflict("an earlier master has refused it")
    tasks = tuple(
        TaskVerdict(task.task_id, None if task.task_id in launched else refused)
        for task in call.all_tasks
    )
    if isinstance(call, calls.Submit):
        return Decision(tasks)
    ended = errors.Conflict("an earlier master has refused it, or it has ended")
    made = {
        hold.hold_id
        for hold in state.holds.values()
        if (hold.made_by, hold.client_id, hold.seq)
        == (framework.framework_id, framework.client_id, seq)
    }
    operations = [
        OperationVerdict(hold.hold_id, None if hold.hold_id in made else ended)
        for hold in call.holds
    ]
    return Decision(tasks, (*operations, *map(OperationVerdict, call.releases)))


def _decide(state: State, framework: Framework, event: FrameworkCalled, now: float) -> Handling:
    match call := event.call:
        case calls.Accept():
            return (yield from accept(state, framework, call, event.seq, now))
        case calls.Submit():
            return Decision((yield from submit(state, framework, call, event.seq, now)))
        case calls.Withdraw():
            return Decision((yield from withdraw(state, framework, call, now)))
        case calls.Release(hold_ids):
            _check_number(len(hold_ids))
            return Decision(operations=(yield from release(state, framework, hold_ids, now)))
        case calls.SendMessage(task_id, data):
            yield from send_message(state, framework, task_id, data, now)
        case calls.Acknowledge(updates, _):
            yield from _on_acknowledged(state, framework, updates)
        case calls.Decline():
            yield from _decline(state, framework, call, now)
        case calls.UpdateDemand() | calls.Suppress() | calls.Revive():
            _change_demand(state, framework, call)
        case calls.Kill(task_id, grace_ms):
            yield from _kill(state, framework, task_id, grace_ms, now)
        case calls.Reconcile(task_ids, _):
            yield from _reconcile(state, framework, task_ids, now)
        case calls.Teardown():
            yield from on_framework.remove(state, framework, "it asked for its teardown", now)
        case calls.Malformed(_, error):
            raise error
        case _:
            assert_never(call)
    return Decision()


def _change_demand(
    state: State, framework: Framework, call: calls.UpdateDemand | calls.Suppress | calls.Revive
) -> None:
    match call:
        case calls.UpdateDemand(demands):
            wanted = check_demands(demands, framework.roles)
            state.allocator.set_demand(framework.framework_id, wanted)
        case calls.Suppress(roles):
            state.allocator.suppress(framework.framework_id, own_roles(roles, framework.roles))
        case calls.Revive(roles):
            state.allocator.revive(framework.framework_id, own_roles(roles, framework.roles))
        case _:
            assert_never(call)


def _check_number(number: int) -> None:
    if number > MAX_NAMED:
        raise errors.InvalidRequest(f"more than {MAX_NAMED} tasks are named in one call")


def _refused(call: calls.Call, error: errors.CroupierError) -> Decision:
    ids: Sequence[TaskId] = ()
    holds: Sequence[HoldId] = ()
    if isinstance(call, calls.Accept | calls.Submit):
        ids = [task.task_id for task in call.all_tasks]
        if isinstance(call, calls.Accept):
            holds = [*(hold.hold_id for hold in call.holds), *call.releases]
    elif isinstance(call, calls.Withdraw | calls.Malformed):
        ids = call.task_ids
    return Decision(
        tuple(TaskVerdict(task_id, error) for task_id in ids[:MAX_TASKS_PER_ACCEPT]),
        tuple(OperationVerdict(hold_id, error) for hold_id in holds[:MAX_TASKS_PER_ACCEPT]),
    )


def _decline(
    state: State, framework: Framework, call: calls.Decline, now: float
) -> Iterator[Effect]:
    refuse_s = checked_refusal(state, call.refuse_s)
    if len(call.reason) > MAX_REASON:
        raise errors.InvalidRequest(f"the reason is longer than {MAX_REASON} characters")
    offers, error = own_offers(state, framework, call.offer_ids)
    # To decline offers that have ended is no error.
    if error is not None and not isinstance(error, errors.Conflict):
        raise error
    for offer in offers:
        yield from return_offer(state, offer, "declined", call.reason, now, refuse_s)


def _kill(
    state: State, framework: Framework, task_id: TaskId, grace_ms: int | None, now: float
) -> Iterator[Effect]:
    if grace_ms is not None:
        check_grace(grace_ms)
    task = framework.tasks.get(task_id)
    if task is None:
        if task_id in framework.used_ids:
            return
        raise errors.NotFound(f"no task {task_id!r}")
    if not task.state.is_terminal or task.is_kept_back:
        yield from on_task.kill(state, task, grace_ms, Reason.KILLED_BY_FRAMEWORK, now)


def _on_acknowledged(
    state: State, framework: Framework, updates: Sequence[tuple[AgentId, TaskId, int]]
) -> Iterator[Effect]:
    _check_number(len(updates))
    for agent_id, task_id, sequence in updates:
        task = framework.tasks.get(task_id)
        last = 0 if task is None else MASTER_SEQUENCE if task.is_orphan else task.sequence
        if task is None or task.agent_id != agent_id or not 0 < sequence <= last:
            yield Happened(UpdateAcknowledged("unknown"))
            continue
        task.acknowledged = max(task.acknowledged, sequence)
        if not task.is_orphan:
            ids = (framework.framework_id, task_id, agent_id)
            yield from on_task.acknowledge(state, TaskStatus(*ids, task.state, sequence=sequence))
        yield Happened(UpdateAcknowledged("forwarded"))
        if task.state.is_terminal and sequence >= task.sequence:
            yield from on_task.drop(state, task)


def _reconcile(
    state: State, framework: Framework, task_ids: tuple[TaskId, ...], now: float
) -> Iterator[Step]:
    assert framework.session is not None
    _check_number(len(task_ids))
    if any(len(task_id) > MAX_ID_BYTES for task_id in task_ids):
        raise errors.InvalidRequest("a task id is too long")
    statuses = []
    for task_id in task_ids or list(framework.tasks):
        yield PAUSE
        task = framework.tasks.get(task_id)
        if task is None:
            statuses.append(_unknown(framework, task_id))
        elif task.is_absent:
            statuses.append(_absent(state, task, now))
        else:
            statuses.append(on_task.reconciled(task, framework.session))
    yield from on_task.send_updates(framework.session, statuses)


def _absent(state: State, task: Task, now: float) -> TaskStatus:
    """Return UNKNOWN for a task of an absent agent, with the time until the agent's timeout."""
    at = state.deadlines.at(AgentTimeout(task.agent_id))
    message = "its agent has yet to return to the new master"
    return replace(
        task.master_made(TaskState.UNKNOWN, Reason.RECONCILIATION, message),
        decided_in_s=None if at is None else max(0.0, at - now),
        is_reconciled=True,
    )


def _unknown(framework: Framework, task_id: TaskId) -> TaskStatus:
    """Return UNKNOWN for a task that is not in the ledger."""
    return TaskStatus(
        framework.framework_id,
        task_id,
        AgentId(""),
        TaskState.UNKNOWN,
        reason=Reason.RECONCILIATION,
        message="it has ended and was acknowledged"
        if task_id in framework.used_ids
        else "the master knows no such task",
        is_reconciled=True,
    )
