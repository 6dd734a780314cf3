"""The state of a new master, from the registry of its predecessor.

Agents and frameworks are absent until they return. The registry lists the tasks; only their agents
know the states.
"""

from __future__ import annotations

from dataclasses import replace

from croupier.master.allocator import Allocator
from croupier.master.core import budgets, hold_charges, on_accounting, records, task_moves
from croupier.master.core.agents import Agent, AgentState
from croupier.master.core.deadlines import AgentTimeout, FailoverTimeout, HoldReview
from croupier.master.core.frameworks import Framework, FrameworkState
from croupier.master.core.holds import Hold
from croupier.master.core.registry import Registry
from croupier.master.core.reservations import recovered
from croupier.master.core.settings import Settings
from croupier.master.core.state import NO_AGENT, State
from croupier.master.core.tasks import KillRequest, Task, TaskHold
from croupier.master.core.usage import UsageLedger
from croupier.master.core.usage_records import history_of
from croupier.model.access import BUILTIN_GROUPS, AccessPolicy
from croupier.model.errors import InvalidRequest
from croupier.model.ids import NO_HOLD, FrameworkId, Role
from croupier.model.principal import PrincipalName
from croupier.model.resources import NOTHING, Resources, total_of
from croupier.model.task import MASTER_SEQUENCE, Reason, TaskState, TaskStatus


def recover_state(
    registry: Registry, master_id: str, settings: Settings, allocator: Allocator, now: float
) -> State:
    """Return the state of a new leader, O(records); raises InvalidRequest if records conflict."""
    _check(registry)
    state = State(master_id, settings, allocator)
    state.generation = registry.master.generation if registry.master else 0
    state.adopts_unproven_until = now + settings.adopt_unproven_s
    state.usage = UsageLedger(now, *history_of(registry.usage.values()))
    _recover_access(state, registry)
    for agent in registry.agents.values():
        _recover_agent(state, agent, now)
    for role in registry.roles.values():
        allocator.set_role(role.role, role.settings)
    for framework in registry.frameworks.values():
        _recover_framework(state, framework, now)
    for hold in registry.holds.values():
        _recover_hold(state, hold, now)
    for task in registry.tasks.values():
        framework_record = registry.frameworks.get(task.framework_id)
        recover_task(
            state, task, now, framework_record.owner if framework_record else records.NO_OWNER
        )
    for reserved in registry.reservations.values():
        state.reservations[reserved.reservation_id] = recovered(reserved)
    charge_absent(state)
    for known in state.frameworks.values():
        _recover_queue(state, known)
        _recover_gangs(state, known)
    on_accounting.count_changes(state)
    state.usage.note_found()
    on_accounting.apply_past_use(state)
    for _ in budgets.review_budgets(state):
        pass  # An earlier master has reported it.
    return state


def _check(registry: Registry) -> None:
    """Raise InvalidRequest if records contradict each other, which no decoder can check."""
    for framework in registry.frameworks.values():
        if len(set(framework.roles)) < len(framework.roles):
            raise InvalidRequest(
                f"the store is damaged: framework {framework.framework_id!r} is in a role twice"
            )
    bound = [token.agent_id for token in registry.tokens.values() if token.agent_id is not None]
    if len(set(bound)) < len(bound):
        raise InvalidRequest("the store is damaged: two tokens are bound to one agent")


def _recover_access(state: State, registry: Registry) -> None:
    groups = {name: record.members for name, record in registry.groups.items()}
    rules = {name: record.rule for name, record in registry.rules.items()}
    revoked = {key_id: record.description for key_id, record in registry.revoked.items()}
    merged = {**BUILTIN_GROUPS, **groups}
    state.set_access(AccessPolicy(state.settings.auth, merged, rules, revoked))
    for token in registry.tokens.values():
        state.tokens.put(token)


def _recover_agent(state: State, record: records.AgentRecord, now: float) -> None:
    if record.gone:
        state.remember_gone(record.agent_id)
        return
    agent = state.agents[record.agent_id] = Agent(
        record.agent_id,
        record.hostname,
        AgentState.UNREACHABLE if record.unreachable else AgentState.ABSENT,
        record.total,
        last_received=now,
        deactivated=record.deactivated,
        drain=record.drain,
        is_authenticated=record.is_authenticated,
    )
    if record.unreachable:
        state.unreachable[agent.agent_id] = None
        return
    state.allocator.charges.add_absent(agent.agent_id, agent.total.scalars)
    state.deadlines.set(AgentTimeout(agent.agent_id), now + state.settings.return_timeout_s)


def _recover_framework(state: State, record: records.FrameworkRecord, now: float) -> None:
    if record.removed:
        state.removed.add(record.framework_id, record.is_unrecorded)
        return
    framework = state.add_framework(
        record.framework_id, record.name, record.roles, record.failover_timeout_s, record.owner
    )
    framework.client_id, framework.epoch = record.client_id, record.epoch
    framework.earlier_clients = record.earlier_clients
    framework.is_unrecorded = record.is_unrecorded
    # It may have been connected until now, so it is given time to reconnect.
    until = now + max(record.failover_timeout_s, state.settings.agent_timeout_s)
    state.deadlines.set(FailoverTimeout(record.framework_id), until)


def _recover_hold(state: State, record: records.HoldRecord, now: float) -> None:
    """Add a hold of the store; `charge_absent` charges it later. Its time goes on."""
    framework = state.frameworks.get(record.framework_id)
    has_owner = not record.framework_id or (framework is not None and not framework.is_removed)
    if record.agent_id not in state.agents or not has_owner:
        return
    hold = Hold(
        record.hold_id,
        record.agent_id,
        record.role,
        record.framework_id,
        record.resources,
        made_by=record.made_by,
        client_id=record.client_id,
        seq=record.seq,
        ttl_s=record.ttl_ms / 1000 if record.ttl_ms else None,
        since=now,
        volume=record.volume,
    )
    hold_charges.add_hold(state, hold)
    if (at := hold.review_at(now)) is not None:
        state.deadlines.set(HoldReview(hold.hold_id), at)
    maker = state.frameworks.get(record.made_by)
    if maker is not None and record.client_id and record.client_id == maker.client_id:
        maker.accepted.setdefault(record.seq, set())


def recover_task(
    state: State, record: records.TaskRecord, now: float, owner: PrincipalName = records.NO_OWNER
) -> None:
    """Add a task of the ledger; `charge_absent` charges it later.

    `owner` is that of its framework.
    """
    framework = state.frameworks.get(record.framework_id)
    if framework is None:
        # It was removed while some of its tasks had yet to end.
        framework = state.add_framework(record.framework_id, "", (record.role,), 0.0, owner)
        framework.move(FrameworkState.REMOVED)
    if record.client_id and record.client_id == framework.client_id:
        framework.accepted.setdefault(record.seq, set()).add(record.task_id)
    if record.is_acknowledged:
        framework.remember_used(record.task_id, state.settings.used_task_ids)
        framework.retained.setdefault(record.seq, []).append(record.task_id)
        return
    agent = state.agents.get(record.agent_id)
    status = _recovered_status(state, record, agent)
    is_orphan = status.state.is_terminal
    kill = KillRequest(*record.kill) if record.kill is not None else None
    if framework.is_removed:
        kill = KillRequest(None, Reason.FRAMEWORK_REMOVED)
    earlier = 0 if record.requeue is None else record.requeue.sequence
    is_held = record.hold_id in state.holds
    is_unreachable = agent is not None and agent.state is AgentState.UNREACHABLE
    task_moves.add_task(
        state,
        Task(
            record.info.slimmed() if is_orphan else record.info,
            record.framework_id,
            record.agent_id,
            record.role,
            status,
            now,
            TaskHold.ORPHANED
            if is_orphan
            else TaskHold.QUEUED
            if record.queued is not None and not record.agent_id
            else TaskHold.LINED_UP
            if record.queued is not None
            else TaskHold.RELEASED
            if is_unreachable
            else TaskHold.ABSENT,
            sequence=max(status.sequence, earlier),
            acknowledged=earlier,
            kill=kill,
            client_id=record.client_id,
            seq=record.seq,
            master_status=record.master_status,
            # UNREACHABLE and QUEUED are never acknowledged: the framework may have missed them.
            is_unsent=is_unreachable or (earlier > 0 and record.queued is not None),
            queued=record.queued,
            hold_id=record.hold_id if is_held else NO_HOLD,
            held=record.held if is_held else NOTHING,
            requeue=record.requeue,
        ),
    )


def _recover_queue(state: State, framework: Framework) -> None:
    """Queue the submitted tasks of a framework, in the order of their submission.

    Raises InvalidRequest if one is in a role that is not the framework's.
    """
    queued = [task for task in framework.tasks.values() if task.is_queued]
    for task in queued:
        if task.role not in framework.roles:
            raise InvalidRequest(
                f"the store is damaged: task {task.task_id!r} of framework"
                f" {framework.framework_id!r} is queued in role {task.role!r}, which it lacks"
            )
    for task in sorted(queued, key=lambda each: each.queued.number if each.queued else 0):
        unit = framework.queued_with(task)
        if task.info.gang is not None and not all(each.is_queued for each in unit):
            task_moves.put_aside(state, task)
        # A group or a gang is queued with its first task.
        elif unit[0] is task:
            task_moves.enqueue(state, *unit)


def _recover_gangs(state: State, framework: Framework) -> None:
    """Note the members that have ended with their agents; the first step decides about the rest."""
    for members in framework.gangs.values():
        for task in members.values():
            if task.state.is_terminal or task.state is TaskState.UNREACHABLE:
                state.ended_members.append(task)


def _recovered_status(state: State, record: records.TaskRecord, agent: Agent | None) -> TaskStatus:
    """Return the last durable status; GONE if the task's agent is unknown.

    A queued task is LOST if the store is an older copy by now: it may have been launched since. Of
    a removed framework, which acknowledges nothing, it ends when its agent gives it back.
    """
    has_place = agent is not None or not record.agent_id
    if record.queued is not None and record.master_status is None and has_place:
        is_removed = bool(record.agent_id) and state.frameworks[record.framework_id].is_removed
        is_lost = record.queued.generation != state.generation and not is_removed
        return TaskStatus(
            record.framework_id,
            record.task_id,
            record.agent_id if is_lost else NO_AGENT,
            TaskState.LOST if is_lost else TaskState.QUEUED,
            reason=Reason.TASK_UNKNOWN if is_lost else Reason.NONE,
            message="the master's store is an older copy; the task may have run" if is_lost else "",
            sequence=MASTER_SEQUENCE if is_lost else 0,
        )
    status = record.master_status or TaskStatus(
        record.framework_id, record.task_id, record.agent_id, TaskState.STAGING
    )
    if agent is not None or status.state.is_terminal:
        return status
    return replace(
        status,
        state=TaskState.GONE,
        reason=Reason.AGENT_UNKNOWN,
        message="its agent is not known any more",
        sequence=MASTER_SEQUENCE,
    )


def charge_absent(state: State) -> None:
    """Charge the tasks and holds of absent agents to their roles and frameworks. O(tasks)."""
    charges = state.allocator.charges
    held: dict[tuple[FrameworkId, Role], list[Resources]] = {}
    for agent in state.agents.values():
        absent = [task for task in agent.tasks.values() if task.is_absent]
        for task in absent:
            held.setdefault((task.framework_id, task.role), []).append(task.info.resources)
        # The record may have less than the tasks hold.
        holds = agent.holds.values() if agent.is_absent else ()
        for hold in holds:
            hold_charges.charge_absent_hold(state, hold)
        used = total_of([state.used(agent), *(hold.unused for hold in holds)]).scalars
        known = agent.total
        missing = {name: milli - known[name] for name, milli in used.items() if milli > known[name]}
        if missing:
            charges.add_absent(agent.agent_id, missing)
    for (framework_id, role), amounts in held.items():
        charges.charge_absent(framework_id, role, amounts)
