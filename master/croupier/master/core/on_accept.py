"""ACCEPT: launch tasks on offers of one agent and one role, in one step.

A bad offer id fails the whole call: its valid offers are rescinded without a filter, and every task
gets a verdict. Tasks are checked in order against the resources that the tasks before them left; a
bad task affects no others but those of its group. The remainder is declined.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import partial

from croupier.master.core import calls
from croupier.master.core.authorisation import require_image, require_user
from croupier.master.core.effects import PAUSE, Effect, Happened, Save, Send, Step
from croupier.master.core.frameworks import Framework
from croupier.master.core.offers import Offer
from croupier.master.core.on_allocation import end_offer, note_unused, return_offer
from croupier.master.core.on_task import moved_fact
from croupier.master.core.state import State
from croupier.master.core.tasks import Task, TaskHold
from croupier.master.core.unit_checks import UnitVerdicts
from croupier.model.access import Action, role_object
from croupier.model.agent_orders import LaunchGroup, LaunchTask
from croupier.model.errors import (
    Conflict,
    CroupierError,
    InvalidRequest,
    NotFound,
    PermissionDenied,
)
from croupier.model.ids import OfferId, TaskId
from croupier.model.limits import MAX_OFFERS_PER_CALL, MAX_TASKS_PER_ACCEPT, MAX_WAIT_S
from croupier.model.resources import NOTHING, Resources, sum_of
from croupier.model.task import TaskInfo, TaskState, TaskStatus
from croupier.model.verdict import TaskVerdict


def accept(
    state: State, framework: Framework, call: calls.Accept, seq: int, now: float
) -> Generator[Step, None, tuple[TaskVerdict, ...]]:
    """Launch the call's tasks on its offers and return their verdicts; `seq` numbers the call.

    Raises:
        InvalidRequest, NotFound, Conflict: if the call as a whole is bad.
        PermissionDenied: if the framework may no longer be in the role of the offers.
    """
    refuse_s = checked_refusal(state, call.refuse_s)
    listed = call.all_tasks
    if len(listed) > MAX_TASKS_PER_ACCEPT:
        raise InvalidRequest(f"more than {MAX_TASKS_PER_ACCEPT} tasks in one ACCEPT")
    offers, error = own_offers(state, framework, call.offer_ids)
    if error is None and len({offer.agent_id for offer in offers}) > 1:
        error = InvalidRequest("the offers are of several agents")
    if error is None and len({offer.role for offer in offers}) > 1:
        error = InvalidRequest("the offers are in several roles")
    if error is not None:
        for offer in offers:
            yield from return_offer(state, offer, "rescinded", str(error), now)
        raise error
    permissions = state.permissions(framework.principal)
    if not permissions.decide(Action.REGISTER, role_object(offers[0].role)):
        denied = PermissionDenied(f"{framework.principal} may not register in {offers[0].role}")
        for offer in offers:
            # Others come first: the next offer would be refused as well.
            yield from return_offer(
                state, offer, "declined", str(denied), now, state.settings.refuse_s
            )
        raise denied
    if not listed:
        for offer in offers:
            yield from return_offer(state, offer, "declined", "", now, refuse_s)
        return ()
    verdicts, left = yield from _launch_all(state, framework, offers, listed, seq, now)
    launched = [
        task.resources
        for task, verdict in zip(listed, verdicts, strict=True)
        if verdict.error is None and isinstance(task, TaskInfo)
    ]
    state.allocator.settle_offers(
        offers[0].framework_id,
        offers[0].role,
        offers[0].agent_id,
        tuple(unit for offer in offers for unit in offer.units),
        launched,
        left,
        now + refuse_s,
        len(offers),
    )
    for offer in offers:
        yield end_offer(state, offer, "accepted", "", now)
        if launched:
            state.allocator.offer_used(offer.framework_id, offer.agent_id)
        else:
            yield from note_unused(state, offer, now)
    return verdicts


def own_offers(
    state: State, framework: Framework, offer_ids: tuple[OfferId, ...]
) -> tuple[list[Offer], CroupierError | None]:
    """Return the framework's outstanding offers of these ids, and the error of the other ids.

    Conflict: the others have ended. NotFound: one was never made to this framework.
    InvalidRequest: the list itself is bad.
    """
    error: CroupierError | None = None
    if not offer_ids or len(offer_ids) > MAX_OFFERS_PER_CALL:
        return [], InvalidRequest(f"an offer must be named, and at most {MAX_OFFERS_PER_CALL}")
    offers: dict[OfferId, Offer] = {}
    for offer_id in offer_ids:
        offer = state.offers.get(offer_id)
        if offer_id in offers:
            error = InvalidRequest(f"offer {offer_id} is named twice")
        elif offer is not None and offer.framework_id == framework.framework_id:
            offers[offer_id] = offer
        elif offer is not None or not state.has_issued(offer_id):
            error = NotFound(f"no offer {offer_id[:300]!r} was made to this framework")
        elif error is None:
            error = Conflict(
                f"offer {offer_id} has ended: accepted, declined, rescinded or expired"
            )
    return list(offers.values()), error


def checked_refusal(state: State, refuse_s: float | None) -> float:
    """Return the seconds of a filter: the default for None, at most a year."""
    return state.settings.refuse_s if refuse_s is None else min(refuse_s, MAX_WAIT_S)


def _launch_all(
    state: State,
    framework: Framework,
    offers: list[Offer],
    tasks: Sequence[TaskInfo | calls.MalformedTask],
    seq: int,
    now: float,
) -> Generator[Step, None, tuple[tuple[TaskVerdict, ...], Resources]]:
    left = NOTHING
    for offer in offers:
        left = left + offer.resources
    decided = UnitVerdicts()
    for unit in calls.units(tasks):
        yield PAUSE
        check = partial(_check, state, framework, offers[0], left)
        check_all = partial(_check_limits, state, offers[0])
        launched = decided.decide(framework, unit, check, check_all)
        for task in launched:
            left = left - task.resources
        if launched:
            yield from _launch(state, framework, offers[0], launched, seq, now)
    return tuple(decided.verdicts), left


def _check(
    state: State,
    framework: Framework,
    offer: Offer,
    left: Resources,
    task: TaskInfo,
    before: Sequence[TaskInfo],
) -> None:
    """Check that a task can be launched on the remainder of the offers, with others `before` it."""
    task.check()
    agent = state.agents[offer.agent_id]
    permissions = state.permissions(framework.principal)
    require_user(permissions, agent, task)
    require_image(permissions, task)
    if framework.has_used(task.task_id):
        raise InvalidRequest(f"task id {task.task_id} was used before; ids are never used again")
    for other in before:
        left = left - other.resources
    if not task.resources <= left:
        raise InvalidRequest(f"task {task.task_id} does not fit: {task.resources.excess(left)}")
    check_counts(state, framework, len(before))
    # Raises no Conflict: the same offer would come again at once.
    agent.check_suitable(task)


def _check_limits(state: State, offer: Offer, tasks: Sequence[TaskInfo]) -> None:
    """Check tasks against the limits, which may have been lowered after the offer was made."""
    amount = tasks[0].resources
    if len(tasks) > 1:
        amount = sum_of(task.resources for task in tasks)
    over = state.allocator.queries.excess(offer.framework_id, offer.role, amount)
    if over:
        raise Conflict(f"task {tasks[0].task_id} would go over a limit: {over}")


def check_counts(state: State, framework: Framework, more: int = 0) -> None:
    """Check that the framework and its owner may have one more task, after `more` others.

    Raises:
        Conflict: if some of their tasks have to end first.
    """
    if framework.ended >= state.settings.unacknowledged:
        raise Conflict(
            f"{framework.ended} tasks of the framework have ended and wait for its"
            " acknowledgement; nothing more is launched before"
        )
    owned = state.owned.tasks(framework.owner) + more
    if framework.owner and owned >= state.settings.owner_tasks:
        raise Conflict(f"{framework.owner} has {state.settings.owner_tasks} tasks; end some first")
    if state.descriptions.is_full_for(framework.framework_id):
        raise Conflict("the framework's tasks have too much text together; wait until some end")
    if state.descriptions.is_over:
        raise Conflict("all tasks of the cluster have too much text together; try again later")


def _launch(
    state: State,
    framework: Framework,
    offer: Offer,
    infos: Sequence[TaskInfo],
    seq: int,
    now: float,
) -> Iterator[Effect]:
    """Launch a task, or all tasks of a group."""
    tasks = [_task(framework, offer, info, seq, now) for info in infos]
    place = (offer.framework_id, offer.role, offer.agent_id)
    for task in tasks:
        state.allocator.charges.launch(*place, task.info.resources)
        state.add_task(task)
        yield Save(task.record())
    yield order_launch(state, *tasks)
    for task in tasks:
        yield Happened(moved_fact(task.status))


def _task(framework: Framework, offer: Offer, info: TaskInfo, seq: int, now: float) -> Task:
    status = TaskStatus(
        framework.framework_id, TaskId(info.task_id), offer.agent_id, TaskState.STAGING
    )
    return Task(
        info,
        framework.framework_id,
        offer.agent_id,
        offer.role,
        status,
        now,
        TaskHold.ACTIVE,
        client_id=framework.client_id,
        seq=seq,
        placed=now,
    )


def order_launch(state: State, *tasks: Task) -> Send:
    """Return the order to launch a task or a group, first or again if it never arrived."""
    first = tasks[0]
    agent = state.agents[first.agent_id]
    assert agent.session is not None
    epoch = state.frameworks[first.framework_id].epoch
    orders = tuple(
        LaunchTask(task.framework_id, task.info, task.role, epoch, lined_up=task.is_lined_up)
        for task in tasks
    )
    is_group = first.info.group is not None
    return Send(agent.session, LaunchGroup(orders) if is_group else orders[0])
