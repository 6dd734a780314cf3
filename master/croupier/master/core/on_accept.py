"""ACCEPT: make holds and launch tasks on offers of one agent and one role, in one step.

A bad offer id fails the whole call: its valid offers are rescinded without a filter, and every task
gets a verdict. Tasks are checked in order against the resources that the tasks before them left; a
bad task affects no others but those of its group. The remainder is declined.

Holds are made first, of what is offered from no hold. A task takes from one hold what that has for
it, and the rest from the other offers.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from croupier.master.core import calls, task_moves
from croupier.master.core.agents import Agent
from croupier.master.core.authorisation import require_image, require_user
from croupier.master.core.effects import PAUSE, Effect, Happened, Save, Send, Step
from croupier.master.core.frameworks import Framework
from croupier.master.core.holds import place_of
from croupier.master.core.offers import Offer
from croupier.master.core.on_allocation import end_offer, note_unused, return_offer
from croupier.master.core.on_executor import check_executor
from croupier.master.core.on_hold import (
    check_hold,
    check_volumes,
    cut_from_hold,
    end_empty,
    make_hold,
    new_hold,
    release,
)
from croupier.master.core.on_task import moved_fact
from croupier.master.core.state import State
from croupier.master.core.task_queues import longest_ms
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
    shortened,
)
from croupier.model.ids import (
    MAX_ID_BYTES,
    NO_FRAMEWORK,
    NO_HOLD,
    AgentId,
    HoldId,
    OfferId,
    Role,
    TaskId,
)
from croupier.model.limits import MAX_OFFERS_PER_CALL, MAX_TASKS_PER_ACCEPT, MAX_WAIT_S
from croupier.model.resources import NOTHING, Resources, sum_of
from croupier.model.task import TaskInfo, TaskState, TaskStatus
from croupier.model.task_checks import check_task
from croupier.model.verdict import OperationVerdict, TaskVerdict


class Decision(NamedTuple):
    """The verdicts on the tasks of a call, and on its operations on holds."""

    tasks: tuple[TaskVerdict, ...] = ()
    operations: tuple[OperationVerdict, ...] = ()


class Part(NamedTuple):
    """The resources of a task, with certain devices.

    Attributes:
        hold_id: the hold that it takes some from; `NO_HOLD` if it takes nothing from one.
        held: that part of them.
    """

    resources: Resources
    hold_id: HoldId = NO_HOLD
    held: Resources = NOTHING


@dataclass(slots=True)
class _Accepted:
    """The offers of an ACCEPT.

    `left`: what is left of them, by hold; that of no hold last.
    """

    framework: Framework
    offers: list[Offer]
    seq: int
    left: dict[HoldId, Resources]

    @property
    def agent_id(self) -> AgentId:
        """Their agent."""
        return self.offers[0].agent_id

    @property
    def role(self) -> Role:
        """Their role."""
        return self.offers[0].role


def accept(
    state: State, framework: Framework, call: calls.Accept, seq: int, now: float
) -> Generator[Step, None, Decision]:
    """Carry out the call on its offers and return the verdicts; `seq` numbers the call.

    Raises InvalidRequest, NotFound, Conflict if the call as a whole is bad; PermissionDenied if the
    framework may no longer be in the role of the offers.
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
    if not (listed or call.holds or call.releases):
        for offer in offers:
            yield from return_offer(state, offer, "declined", "", now, refuse_s)
        return Decision()
    left = dict.fromkeys(sorted({offer.hold_id for offer in offers}, reverse=True), NOTHING)
    left.setdefault(NO_HOLD, NOTHING)
    for offer in offers:
        left[offer.hold_id] = left[offer.hold_id] + offer.resources
    accepted = _Accepted(framework, offers, seq, left)
    operations = yield from _make_holds(state, accepted, call.holds, now)
    verdicts = yield from _launch_all(state, accepted, listed, now)
    launched = [
        task.resources
        for task, verdict in zip(listed, verdicts, strict=True)
        if verdict.error is None and isinstance(task, TaskInfo)
    ]
    _settle(state, accepted, launched, now + refuse_s)
    is_used = bool(launched) or any(each.ok for each in operations)
    for offer in offers:
        yield end_offer(state, offer, "accepted", "", now)
        if is_used:
            state.allocator.offer_used(offer.framework_id, offer.place)
        else:
            yield from note_unused(state, offer, now)
    released = yield from release(state, framework, call.releases, now)
    yield from end_empty(state, accepted.left, now)
    return Decision(verdicts, operations + released)


def _settle(
    state: State, accepted: _Accepted, launched: list[Resources], refused_until: float
) -> None:
    """Settle the offers of each hold and of none; a new hold gets back what no task uses."""
    framework_id = accepted.framework.framework_id
    for hold_id, rest in accepted.left.items():
        offers = [offer for offer in accepted.offers if offer.hold_id == hold_id]
        if not (offers or rest or launched):
            continue
        state.allocator.settle_offers(
            framework_id,
            accepted.role,
            place_of(accepted.agent_id, hold_id),
            tuple(unit for offer in offers for unit in offer.units),
            launched,
            rest,
            refused_until if offers else None,
            len(offers),
        )
        # The tasks are counted once.
        launched = []


def _make_holds(
    state: State, accepted: _Accepted, holds: Sequence[calls.MakeHold], now: float
) -> Generator[Step, None, tuple[OperationVerdict, ...]]:
    verdicts = []
    framework, role = accepted.framework, accepted.role
    for wanted in holds:
        try:
            check_hold(state, wanted, framework.framework_id, state.agents[accepted.agent_id], role)
            source = _source(state, accepted, wanted)
            free = accepted.left[source]
            amount = state.agents[accepted.agent_id].certain(wanted.resources, [free])
            wanted = replace(wanted, resources=amount)
            if not wanted.resources <= free:
                excess = wanted.resources.excess(free)
                is_held = any(offer.hold_id for offer in accepted.offers)
                where = " in what is offered and not held" if is_held else ""
                raise InvalidRequest(f"hold {wanted.hold_id} does not fit{where}: {excess}")
            # What is held is charged to its owner already.
            over = not source and state.allocator.queries.excess(
                framework.framework_id, role, wanted.resources
            )
            if over:
                raise Conflict(f"hold {wanted.hold_id} would go over a limit: {over}")
        except CroupierError as error:
            verdicts.append(OperationVerdict(wanted.hold_id[:MAX_ID_BYTES], shortened(error)))
            continue
        hold = new_hold(wanted, accepted.agent_id, role, framework, accepted.seq, now)
        accepted.left[source] = free - wanted.resources
        taker = (framework.framework_id, role)
        if source:
            yield from cut_from_hold(state, state.holds[source], hold.resources, taker, now)
            yield from make_hold(state, hold, now)
        else:
            yield from make_hold(state, hold, now, taker)
        if not hold.volume:
            # Tasks take from holds before they take from the rest.
            accepted.left = {hold.hold_id: wanted.resources, **accepted.left}
        elif not source:
            # No task takes from it.
            state.allocator.settle_offers(*taker, hold.place, (), unused=wanted.resources, offers=0)
        verdicts.append(OperationVerdict(hold.hold_id))
    return tuple(verdicts)


def _source(state: State, accepted: _Accepted, wanted: calls.MakeHold) -> HoldId:
    """Return the hold of a volume's owner that has room for it among the offers; or `NO_HOLD`."""
    owner = NO_FRAMEWORK if wanted.for_role else accepted.framework.framework_id, accepted.role
    for hold_id, room in accepted.left.items() if wanted.volume else ():
        if hold_id and state.holds[hold_id].owner == owner and wanted.resources <= room:
            return hold_id
    return NO_HOLD


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
    state: State, accepted: _Accepted, tasks: Sequence[TaskInfo | calls.MalformedTask], now: float
) -> Generator[Step, None, tuple[TaskVerdict, ...]]:
    decided = UnitVerdicts()
    for unit in calls.units(tasks):
        yield PAUSE
        left, parts = dict(accepted.left), dict[TaskId, Part]()
        check = partial(_check, state, accepted, left, parts)
        check_all = partial(_check_all, state, accepted, parts, now)
        launched = decided.decide(accepted.framework, unit, check, check_all)
        if launched:
            accepted.left = left
            yield from _launch(state, accepted, launched, parts, now)
    return tuple(decided.verdicts)


def _check(
    state: State,
    accepted: _Accepted,
    left: dict[HoldId, Resources],
    parts: dict[TaskId, Part],
    task: TaskInfo,
    before: Sequence[TaskInfo],
) -> None:
    """Check that a task can be launched, and take its resources from what is `left` of the offers.

    `parts` has what each task takes from a hold; `before` are others that are launched with it.
    """
    check_task(task)
    if task.preemption.requeue:
        raise InvalidRequest(
            f"task {task.task_id} is to be requeued, which only submitted tasks are"
        )
    framework, agent = accepted.framework, state.agents[accepted.agent_id]
    permissions = state.permissions(framework.principal)
    if not task.executor_id:
        require_user(permissions, agent, task)
    require_image(permissions, task)
    if framework.has_used(task.task_id):
        raise InvalidRequest(f"task id {task.task_id} was used before; ids are never used again")
    rest = dict(left)
    part = _take(agent, rest, task)
    check_counts(state, framework, len(before))
    # Raises no Conflict: the same offer would come again at once.
    agent.check_suitable(task)
    check_executor(framework, task, accepted.agent_id)
    place = check_volumes(state, framework, task, accepted.role)
    if place not in (None, accepted.agent_id):
        raise InvalidRequest(f"the volumes of task {task.task_id} are on agent {place}")
    left |= rest
    parts[task.task_id] = part


def _take(agent: Agent, left: dict[HoldId, Resources], task: TaskInfo) -> Part:
    """Take the resources of a task from what is left; return them with the part of a hold.

    Raises InvalidRequest if they do not fit.
    """
    wanted, free = agent.certain(task.resources, left.values(), task.devices), left[NO_HOLD]
    parts = [(each, wanted.within(room)) for each, room in left.items() if each]
    if agent.inventory is not None:
        parts = [(each, agent.inventory.undivided(part, wanted)) for each, part in parts]
    # A hold that has room for all of it comes first.
    parts.sort(key=lambda part: part[1] != wanted)
    for hold_id, part in (*parts, (NO_HOLD, NOTHING)):
        rest = wanted - part
        if rest <= free:
            left[NO_HOLD] = free - rest
            if part:
                left[hold_id] = left[hold_id] - part
            return Part(wanted, hold_id, part) if part else Part(wanted)
    why = wanted.excess(sum_of(left.values())) or "it may take from one hold only"
    raise InvalidRequest(f"task {task.task_id} does not fit: {why}")


def _check_all(
    state: State,
    accepted: _Accepted,
    parts: dict[TaskId, Part],
    now: float,
    tasks: Sequence[TaskInfo],
) -> None:
    """Check tasks that are launched together against what changed after the offer was made."""
    _check_reserved(state, accepted, parts, now, tasks)
    _check_limits(state, accepted, parts, tasks)


def _check_reserved(
    state: State,
    accepted: _Accepted,
    parts: dict[TaskId, Part],
    now: float,
    tasks: Sequence[TaskInfo],
) -> None:
    """Raise Conflict if a reservation of the agent keeps tasks away that end together.

    The agent may have been reserved after it was offered, or offered for tasks that end sooner.
    """
    barring = state.allocator.reservations.objection(
        accepted.agent_id,
        accepted.framework.framework_id,
        accepted.role,
        longest_ms(tasks),
        now,
    )
    is_within_hold = all(
        part.resources == part.held for part in (parts[each.task_id] for each in tasks)
    )
    if barring is not None and not is_within_hold:
        starts_s = max(barring.starts_at - now, 0.0)
        raise Conflict(
            f"agent {accepted.agent_id} is reserved for another role in {starts_s:.0f} s; until"
            " then it takes only tasks whose max_completion ends before"
        )


def _check_limits(
    state: State, accepted: _Accepted, parts: dict[TaskId, Part], tasks: Sequence[TaskInfo]
) -> None:
    """Check tasks against the limits, which may have been lowered."""
    needed: dict[HoldId, Resources] = {}
    for task in tasks:
        resources, hold_id, held = parts[task.task_id]
        for each, amount in ((NO_HOLD, resources - held), (hold_id, held)):
            needed[each] = needed.get(each, NOTHING) + amount
    for hold_id, amount in needed.items():
        place = place_of(accepted.agent_id, hold_id)
        framework_id = accepted.framework.framework_id
        over = state.allocator.queries.excess(framework_id, accepted.role, amount, place)
        if over:
            raise Conflict(f"task {tasks[0].task_id} would go over a limit: {over}")


def check_counts(state: State, framework: Framework, more: int = 0) -> None:
    """Check that the framework and its owner may have one more task, after `more` others.

    Raises Conflict if some of their tasks have to end first.
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
    accepted: _Accepted,
    infos: Sequence[TaskInfo],
    parts: dict[TaskId, Part],
    now: float,
) -> Iterator[Effect]:
    """Launch a task, or all tasks of a group."""
    tasks = [_task(accepted, info, parts[info.task_id], now) for info in infos]
    for task in tasks:
        launch_charges(state, task, task.agent_id)
        task_moves.add_task(state, task)
        yield Save(task.record())
    yield order_launch(state, *tasks)
    for task in tasks:
        yield Happened(moved_fact(task.status))


def _task(accepted: _Accepted, info: TaskInfo, part: Part, now: float) -> Task:
    framework, agent_id = accepted.framework, accepted.agent_id
    status = TaskStatus(framework.framework_id, TaskId(info.task_id), agent_id, TaskState.STAGING)
    if part.resources != info.resources:
        # Such as gpus:2, which are certain ones now.
        info = replace(info, resources=part.resources)
    return Task(
        info,
        framework.framework_id,
        agent_id,
        accepted.role,
        status,
        now,
        TaskHold.ACTIVE,
        client_id=framework.client_id,
        seq=accepted.seq,
        placed=now,
        hold_id=part.hold_id,
        held=part.held,
    )


def launch_charges(state: State, task: Task, agent_id: AgentId) -> None:
    """Turn offered resources into those of a task: of the agent, and of its hold."""
    launch, owner = state.allocator.charges.launch, (task.framework_id, task.role)
    launch(*owner, agent_id, task.rest)
    if task.held:
        launch(*owner, place_of(agent_id, task.hold_id), task.held, tasks=0)


def order_launch(state: State, *tasks: Task) -> Send:
    """Return the order to launch a task or a group, first or again if it never arrived."""
    first = tasks[0]
    agent = state.agents[first.agent_id]
    assert agent.session is not None
    epoch = state.frameworks[first.framework_id].epoch
    orders = tuple(
        LaunchTask(
            task.framework_id,
            task.info,
            task.role,
            epoch,
            lined_up=task.is_lined_up,
            sequence=0 if task.requeue is None else task.requeue.sequence,
        )
        for task in tasks
    )
    is_group = first.info.group is not None
    return Send(agent.session, LaunchGroup(orders) if is_group else orders[0])
