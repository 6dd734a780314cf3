"""SUBMIT and WITHDRAW: tasks that the master places itself.

A queued task is a unit of demand. The allocator deals to it as to declared demand, in the same
order and within the same limits; where it would make an offer, the task is launched.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from croupier.master.allocator.grant import Grant
from croupier.master.allocator.pending_demand import Shape
from croupier.master.core import calls, task_moves
from croupier.master.core.agents import Agent
from croupier.master.core.authorisation import (
    require,
    require_image,
    require_registered,
    require_user,
)
from croupier.master.core.effects import PAUSE, Effect, Happened, Save, Send, Step
from croupier.master.core.frameworks import Framework
from croupier.master.core.launches import check_counts, launch_charges, order_launch
from croupier.master.core.messages import Placed
from croupier.master.core.on_executor import check_executor, executor_of, takes_tasks
from croupier.master.core.on_gang import launch_gang
from croupier.master.core.on_hold import check_volumes
from croupier.master.core.on_task import end, end_queued, kill, moved_fact
from croupier.master.core.records import QueuePlace, Requeue
from croupier.master.core.state import State
from croupier.master.core.task_queues import MAX_QUEUES, Unit, shape_of
from croupier.master.core.tasks import Task, TaskHold
from croupier.master.core.unit_checks import UnitVerdicts
from croupier.model.access import Action, user_object
from croupier.model.attributes import AGENT_ID, equals
from croupier.model.demand import Demand
from croupier.model.devices import Slots, needs_of, slots_as_resources
from croupier.model.errors import Conflict, CroupierError, InvalidRequest, NotFound, shortened
from croupier.model.ids import MAX_ID_BYTES, AgentId, Role, TaskId
from croupier.model.limits import MAX_TASKS_PER_SUBMIT
from croupier.model.resources import Resources
from croupier.model.task import Reason, TaskInfo, TaskState, TaskStatus
from croupier.model.task_checks import check_task
from croupier.model.verdict import TaskVerdict

Verdicts = Generator[Step, None, tuple[TaskVerdict, ...]]


@dataclass(slots=True)
class _Submission:
    """One SUBMIT.

    Attributes:
        checked: the shapes that can be dealt.
        agents: of each task that needs a certain one, for its executor or volumes.
    """

    framework: Framework
    role: Role
    place: QueuePlace
    seq: int
    checked: set[Shape]
    agents: dict[TaskId, AgentId]


def submit(
    state: State, framework: Framework, call: calls.Submit, seq: int, now: float
) -> Verdicts:
    """Queue the call's tasks and return their verdicts; `seq` numbers the call.

    Raises InvalidRequest if the call as a whole is bad; PermissionDenied if the framework may no
    longer be in the role.
    """
    if len(call.all_tasks) > MAX_TASKS_PER_SUBMIT:
        raise InvalidRequest(f"more than {MAX_TASKS_PER_SUBMIT} tasks in one SUBMIT")
    role = framework.roles[0] if call.role is None else call.role
    if role not in framework.roles:
        raise InvalidRequest(f"role {role[:80]!r} is not one of the framework's")
    require_registered(state.permissions(framework.principal), (role,))
    call.placement.check()
    place = QueuePlace(call.placement, framework.queues.last + 1, state.generation)
    submission = _Submission(framework, role, place, seq, set(), {})
    decided = UnitVerdicts()
    for unit in calls.units(call.all_tasks):
        yield PAUSE
        check = partial(_check, state, submission)
        queued = decided.decide(framework, unit, check, partial(_check_shape, submission))
        if queued:
            yield from _enqueue(state, submission, queued, now)
    return tuple(decided.verdicts)


def withdraw(state: State, framework: Framework, call: calls.Withdraw, now: float) -> Verdicts:
    """End those of the named tasks that are queued; return a verdict for each.

    Raises InvalidRequest if too many are named, or an id is too long.
    """
    if len(call.task_ids) > MAX_TASKS_PER_SUBMIT:
        raise InvalidRequest(f"more than {MAX_TASKS_PER_SUBMIT} tasks are named in one WITHDRAW")
    if any(len(task_id) > MAX_ID_BYTES for task_id in call.task_ids):
        raise InvalidRequest("a task id is too long")
    verdicts: list[TaskVerdict] = []
    for task_id in call.task_ids:
        yield PAUSE
        error: CroupierError | None = None
        task = framework.tasks.get(task_id)
        if task is None and not framework.has_used(task_id):
            error = NotFound(f"no task {task_id!r}")
        elif task is not None and task.is_queued:
            reason, message = Reason.KILLED_BY_FRAMEWORK, "withdrawn while queued"
            yield from end_queued(state, task, TaskState.KILLED, reason, message, now)
        elif task is not None and task.is_lined_up:
            # It ends as soon as its agent has returned it; if it has started, it is killed.
            yield from kill(state, task, None, Reason.KILLED_BY_FRAMEWORK, now)
        elif task is not None and not task.state.is_terminal:
            error = Conflict(f"task {task_id} was placed already; kill it instead")
        elif task is None or task.status.reason is not Reason.KILLED_BY_FRAMEWORK:
            error = Conflict(f"task {task_id} has ended; there was nothing to withdraw")
        verdicts.append(TaskVerdict(task_id, error))
    return tuple(verdicts)


def launch_queued(state: State, grant: Grant, now: float) -> Iterator[Effect]:
    """Launch the first queued tasks of the shape that was dealt."""
    assert grant.shape is not None
    number = sum(units for _, units in grant.units)
    queued = state.frameworks[grant.framework_id].queues.first((grant.role, grant.shape), number)
    if grant.places:
        return launch_gang(state, grant, queued[0], now)
    return launch_on(state, grant, queued, now)


def launch_on(state: State, grant: Grant, queued: Iterable[Unit], now: float) -> Iterator[Effect]:
    """Launch these queued tasks and groups, for which the grant was made."""
    assert grant.shape is not None
    hold = state.places.get(grant.agent_id)
    agent = state.agents[grant.agent_id if hold is None else hold.agent_id]
    framework = state.frameworks[grant.framework_id]
    left, unused, launched = grant.resources, 0, []
    devices = iter(grant.devices)
    for unit in queued:
        slots = iter(next(devices, ()))
        kind, _ = framework.queues.remove(unit[0])
        try:
            for task in unit:
                # The constraints of the shape cannot state these.
                if not task.info.executor_id:
                    require_user(state.permissions(framework.principal), agent, task.info)
                agent.check_suitable(task.info)
                check_executor(framework, task.info, agent.agent_id)
                # A volume may have been released meanwhile, and its id be that of another one.
                check_volumes(state, framework, task.info, task.role, agent.agent_id)
        except CroupierError as error:
            unused += 1
            executor = framework.tasks.get(unit[0].info.executor_id)
            new, reason = TaskState.ERROR, Reason.TASK_INVALID
            if executor is not None and not takes_tasks(executor):
                # As if the executor had ended already.
                new, reason = TaskState.DROPPED, Reason.EXECUTOR_TERMINATED
            for task in unit:
                task.queued = None
                yield from end(state, task, new, reason, str(shortened(error)), now)
            continue
        for task in unit:
            amount = _certain(agent, task.info, left, slots)
            left = left - amount
            if hold is not None:
                # No task is lined up behind it: the hold is for its owner anyway.
                task.hold_id, task.held = hold.hold_id, amount
            if amount != task.info.resources:
                # Such as ports:2 or gpus:2, which are certain ones now.
                task.info = replace(task.info, resources=amount)
            elif task.info.group is None and hold is None:
                task.kind = kind
        yield from _launch(state, unit, agent.agent_id, now)
        launched += [task.status for task in unit]
    if unused:
        state.allocator.settle_offers(*grant.place, (), unused=left, offers=unused)
    state.allocator.launched(grant)
    if launched and framework.session is not None:
        yield Send(framework.session, Placed(agent.describe(), tuple(launched)))


def _certain(agent: Agent, task: TaskInfo, left: Resources, slots: Iterator[Slots]) -> Resources:
    """Return certain resources for a task, and take the slots of its devices from `slots`."""
    amount = task.resources.carve(left, 1)
    if agent.inventory is None:
        return amount
    needs = agent.inventory.needs(amount, needs_of(amount, task.devices))
    return amount + slots_as_resources(islice(slots, len(needs)))


def _check(
    state: State, submission: _Submission, task: TaskInfo, before: Sequence[TaskInfo]
) -> None:
    """Check that a task can be queued, with the others of its group `before` it."""
    framework, permissions = submission.framework, state.permissions(submission.framework.principal)
    check_task(task)
    if task.resources.ranges or task.resources.sets:
        certain = ", ".join(sorted({*task.resources.ranges, *task.resources.sets}))
        raise InvalidRequest(
            f"task {task.task_id} asks for certain {certain}; a submitted task asks for a number of"
            " them, as in ports:2"
        )
    require_image(permissions, task)
    if task.command.user:
        require(permissions, Action.RUN_AS, user_object(task.command.user))
    if framework.has_used(task.task_id):
        raise InvalidRequest(f"task id {task.task_id} was used before; ids are never used again")
    if len(framework.queues) + len(before) >= state.settings.queued_tasks:
        raise Conflict(f"{len(framework.queues)} tasks of the framework are queued; no more are")
    check_counts(state, framework, len(before))
    agent_id = check_volumes(state, framework, task, submission.role)
    if task.executor_id:
        there = executor_of(framework, task).agent_id
        if agent_id not in (None, there):
            raise InvalidRequest(
                f"the volumes of task {task.task_id} are not where its executor is"
            )
        agent_id = there
    if agent_id is not None:
        submission.agents[task.task_id] = agent_id


def _check_shape(submission: _Submission, tasks: Sequence[TaskInfo]) -> None:
    """Check that there can be a queue for a task, a gang, or a group, which is on one agent."""
    agents = submission.agents
    needed = {agents[task.task_id] for task in tasks if task.task_id in agents}
    if len(needed) > 1:
        raise InvalidRequest("the executors or volumes of the group are on several agents")
    for agent_id in needed:
        agents.update((task.task_id, agent_id) for task in tasks)
    framework, shape = submission.framework, shape_of(tasks, _place(submission, tasks[0]).placement)
    if shape not in submission.checked:
        _check_same_devices(tasks)
        for unit in (shape.unit,) if shape.gang is None else shape.gang.units:
            Demand(unit, 1, shape.placement.constraints).check()
        if not framework.queues.has_room((submission.role, shape)):
            raise Conflict(
                f"the queued tasks of the framework have {MAX_QUEUES} different resources,"
                " constraints or roles; try again when all tasks of one kind were placed"
            )
        submission.checked.add(shape)


def _check_same_devices(tasks: Sequence[TaskInfo]) -> None:
    """Check that all tasks of a gang that have devices ask for the same ones."""
    if tasks[0].gang is None:
        return
    asked = {task.devices for task in tasks if task.devices is not None}
    rest = (task.resources for task in tasks if task.devices is None)
    if len(asked) > 1 or any(amount[request.kind] for request in asked for amount in rest):
        raise InvalidRequest("the tasks of a gang ask for different devices")


def _place(submission: _Submission, task: TaskInfo) -> QueuePlace:
    """Return the place of a task in its queue, which may wait for one agent."""
    place, agent_id = submission.place, submission.agents.get(task.task_id)
    if agent_id is None:
        return place
    constraints = (*place.placement.constraints, equals(AGENT_ID, agent_id))
    return replace(place, placement=replace(place.placement, constraints=constraints))


def _enqueue(
    state: State, submission: _Submission, infos: Sequence[TaskInfo], now: float
) -> Iterator[Effect]:
    """Queue a task, or all tasks of a group or a gang."""
    tasks = [_task(submission, info, now) for info in infos]
    for task in tasks:
        task_moves.add_task(state, task)
    task_moves.enqueue(state, *tasks)
    for task in tasks:
        yield Save(task.record())
        yield Happened(moved_fact(task.status))


def _task(submission: _Submission, info: TaskInfo, now: float) -> Task:
    framework = submission.framework
    may_return = info.preemption.requeue or (info.gang is not None and info.gang.restarts > 0)
    status = TaskStatus(framework.framework_id, TaskId(info.task_id), AgentId(""), TaskState.QUEUED)
    return Task(
        info,
        framework.framework_id,
        AgentId(""),
        submission.role,
        status,
        now,
        TaskHold.QUEUED,
        client_id=framework.client_id,
        seq=submission.seq,
        queued=_place(submission, info),
        submitted=now,
        requeue=Requeue(_place(submission, info)) if may_return else None,
    )


def _launch(state: State, unit: Sequence[Task], agent_id: AgentId, now: float) -> Iterator[Effect]:
    """Launch a task or a group that was taken out of its queue."""
    for task in unit:
        launch_charges(state, task, agent_id)
        task_moves.place_task(state, task, agent_id, now)
        yield Save(task.record())
    yield order_launch(state, *unit)
    for task in unit:
        yield Happened(moved_fact(task.status))
