"""ACCEPT: make holds and launch tasks on offers of one agent and one role, in one step.

A bad offer id fails the whole call: its valid offers are rescinded without a filter, and every task
gets a verdict. Tasks are checked in order against the resources that the tasks before them left; a
bad task affects no others but those of its group. The remainder is declined.

Holds are made first, of what is offered from no hold.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import NamedTuple

from croupier.master.core import calls
from croupier.master.core.effects import PAUSE, Step
from croupier.master.core.frameworks import Framework
from croupier.master.core.holds import place_of
from croupier.master.core.offers import Offer
from croupier.master.core.on_allocation import end_offer, note_unused, return_offer
from croupier.master.core.on_hold import (
    check_hold,
    cut_from_hold,
    end_empty,
    make_hold,
    new_hold,
    release,
)
from croupier.master.core.state import State
from croupier.master.core.unit_checks import UnitVerdicts
from croupier.master.core.unit_launch import Accepted, UnitLaunch
from croupier.model.access import Action, role_object
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
    HoldId,
    OfferId,
)
from croupier.model.limits import MAX_OFFERS_PER_CALL, MAX_TASKS_PER_ACCEPT, MAX_WAIT_S
from croupier.model.resources import NOTHING, Resources
from croupier.model.task import TaskInfo
from croupier.model.verdict import OperationVerdict, TaskVerdict


class Decision(NamedTuple):
    """The verdicts on the tasks of a call, and on its operations on holds."""

    tasks: tuple[TaskVerdict, ...] = ()
    operations: tuple[OperationVerdict, ...] = ()


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
    accepted = Accepted(framework, offers, seq, left)
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
            state.allocator.answers.used(offer.framework_id, offer.place)
        else:
            yield from note_unused(state, offer, now)
    released = yield from release(state, framework, call.releases, now)
    yield from end_empty(state, accepted.left, now)
    return Decision(verdicts, operations + released)


def _settle(
    state: State, accepted: Accepted, launched: list[Resources], refused_until: float
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
    state: State, accepted: Accepted, holds: Sequence[calls.MakeHold], now: float
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


def _source(state: State, accepted: Accepted, wanted: calls.MakeHold) -> HoldId:
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
    state: State, accepted: Accepted, tasks: Sequence[TaskInfo | calls.MalformedTask], now: float
) -> Generator[Step, None, tuple[TaskVerdict, ...]]:
    decided = UnitVerdicts()
    for unit in calls.units(tasks):
        yield PAUSE
        launch = UnitLaunch(state, accepted, now, dict(accepted.left))
        launched = decided.decide(accepted.framework, unit, launch.check, launch.check_all)
        if launched:
            accepted.left = launch.left
            yield from launch.launch(launched)
    return tuple(decided.verdicts)
