"""Reservations over time: their agents are chosen, announced, cleared of others, and given back.

Rule: a review compares each reservation with the time of day and with its agents, and may be
repeated at any moment. It is due whenever a reservation changes, and with every event that tells
the time of day; so a jump of the clock is noticed by the next one.

Agents are chosen when the reservation is made: first those with the fewest tasks of others that
would run into it. An agent that is lost, drained or deactivated is replaced by the same choice.

While a reservation is active, tasks of others on its agents are preempted if its role may preempt.
They are asked by the time that their grace ends with its begin. Others run on, and are counted.
Tasks in holds are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from croupier.master.allocator import reservations as pooled
from croupier.master.core.agents import Agent, AgentState
from croupier.master.core.deadlines import ReservationReview
from croupier.master.core.effects import Effect, Happened, Save, Send
from croupier.master.core.facts import ReservationChange, ReservationChanged
from croupier.master.core.messages import PreemptRequested
from croupier.master.core.on_allocation import rescind
from croupier.master.core.on_preemption import kill_with_signal, protected_until
from croupier.master.core.on_task import kill
from croupier.master.core.records import ForgetReservation
from croupier.master.core.reservations import NewReservation, Reservation, ReservationState
from croupier.master.core.state import State
from croupier.master.core.tasks import Task
from croupier.model.access import Action, agent_object
from croupier.model.attributes import facts_of
from croupier.model.ids import NO_FRAMEWORK, AgentId
from croupier.model.principal import Principal, PrincipalName
from croupier.model.roles import is_within
from croupier.model.task import Reason

# What others are told; the role may be none that they may view.
_TOLD = "the agent is reserved for another role"


def review_all(state: State, now: float) -> Iterator[Effect]:
    """Bring all reservations up to date, and set when the next review is due."""
    wall_ms = state.wall_ms(now)
    if wall_ms is None or not state.reservations:
        return
    for reservation in list(state.reservations.values()):
        yield from _review(state, reservation, wall_ms, now)
    due = [_next_due(state, each, now) for each in state.reservations.values()]
    if due:
        state.deadlines.set(ReservationReview(), min(due))


def end(
    state: State, reservation: Reservation, change: ReservationChange, operator: str = ""
) -> Iterator[Effect]:
    """Forget a reservation; its agents are for all again."""
    _release(state, reservation)
    reservation.move(ReservationState.ENDED)
    del state.reservations[reservation.reservation_id]
    yield Save(ForgetReservation(reservation.reservation_id))
    yield _changed(reservation, change, operator=operator)


def choose(
    state: State,
    wanted: NewReservation,
    made_by: PrincipalName,
    kept: Iterable[AgentId],
) -> list[AgentId]:
    """Return the kept agents and as many others as are wanted, if there are so many. O(agents).

    Other agents are those that can be offered, pass the constraints, have the least resources, are
    not reserved at any such time, and that the principal may operate.
    """
    found = list(kept)
    if len(found) >= wanted.agents:
        return found
    taken = {*found, *_reserved_agents(state, wanted)}
    permissions = state.permissions(Principal(made_by))
    free = [
        agent
        for agent in state.agents.values()
        if agent.agent_id not in taken
        and agent.is_offered
        and _is_suitable(agent, wanted)
        and permissions.decide(Action.OPERATE_AGENTS, agent_object(agent.agent_id))
    ]
    begins_at = state.at_wall(wanted.times.from_ms)

    def conflicts(agent: Agent) -> tuple[int, int, AgentId]:
        others = sum(_runs_into(task, wanted, begins_at) for task in agent.tasks.values())
        return others, len(agent.tasks), agent.agent_id

    free.sort(key=conflicts)
    return found + [agent.agent_id for agent in free[: wanted.agents - len(found)]]


def others_on(state: State, reservation: Reservation) -> list[Task]:
    """Return the tasks of others on its agents that may still run at its begin."""
    begins_at = state.at_wall(reservation.times.from_ms)
    return [
        task
        for agent_id in reservation.agent_ids
        if agent_id in state.agents
        for task in state.agents[agent_id].tasks.values()
        if _runs_into(task, reservation.wanted, begins_at)
    ]


def _is_suitable(agent: Agent, wanted: NewReservation) -> bool:
    facts = facts_of(agent.hostname, agent.attributes, agent.features, agent.agent_id)
    return wanted.least <= agent.total and all(each.holds(facts) for each in wanted.constraints)


def _reserved_agents(state: State, wanted: NewReservation) -> Iterator[AgentId]:
    """Yield the agents of other reservations that overlap."""
    for each in state.reservations.values():
        if each.reservation_id != wanted.reservation_id and each.times.overlaps(wanted.times):
            yield from each.agent_ids


def _runs_into(task: Task, wanted: NewReservation, begins_at: float) -> bool:
    """Return whether a task of others may still run when a reservation begins."""
    if not task.is_counted or task.hold_id or is_within(task.role, wanted.role):
        return False
    lasts_s = task.info.max_completion_ms / 1000
    return not lasts_s or task.since + lasts_s > begins_at


def _review(state: State, reservation: Reservation, wall_ms: int, now: float) -> Iterator[Effect]:
    if wall_ms >= reservation.times.until_ms:
        if not reservation.times.every_ms:
            yield from end(state, reservation, "over")
            return
        yield from _recur(state, reservation, wall_ms)
    yield from _replace_lost(state, reservation)
    if reservation.state is ReservationState.WAITING and wall_ms >= reservation.announced_ms:
        reservation.move(ReservationState.ANNOUNCED)
        yield _changed(reservation, "announced")
    if reservation.state is ReservationState.ANNOUNCED and wall_ms >= reservation.times.from_ms:
        reservation.move(ReservationState.ACTIVE)
        left = len(others_on(state, reservation))
        yield _changed(reservation, "began", tasks=left)
    if reservation.binds:
        yield from _bind(state, reservation, now)
        yield from _clear(state, reservation, now)


def _recur(state: State, reservation: Reservation, wall_ms: int) -> Iterator[Effect]:
    """Move on to the next occurrence, which is not announced yet."""
    wanted = reservation.wanted
    if reservation.binds:
        _release(state, reservation)
        yield _changed(reservation, "over")
    if reservation.state is ReservationState.ANNOUNCED:
        # The master was away while it was active.
        reservation.move(ReservationState.ACTIVE)
    if reservation.state is ReservationState.ACTIVE:
        reservation.move(ReservationState.WAITING)
    reservation.wanted = wanted.at(wanted.times.after(wall_ms))
    yield Save(reservation.record())


def _replace_lost(state: State, reservation: Reservation) -> Iterator[Effect]:
    """Replace agents that it cannot have, if there are others."""
    kept = [each for each in reservation.agent_ids if not _is_lost(state.agents.get(each))]
    wanted, before = reservation.wanted, reservation.agent_ids
    found = tuple(choose(state, wanted, PrincipalName(reservation.made_by), kept))
    if found == before:
        return
    for agent_id in before:
        if agent_id not in found:
            state.allocator.reservations.remove(agent_id, reservation.reservation_id)
    reservation.agent_ids = found
    yield Save(reservation.record())
    yield _changed(reservation, "agents")


def _is_lost(agent: Agent | None) -> bool:
    if agent is None or agent.state in (AgentState.UNREACHABLE, AgentState.GONE):
        return True
    return agent.deactivated or agent.drain is not None


def _bind(state: State, reservation: Reservation, now: float) -> Iterator[Effect]:
    """Let the allocator keep others away, and take back what they are offered."""
    times = reservation.times
    starts_at, until = state.at_wall(times.from_ms), state.at_wall(times.until_ms)
    owner = NO_FRAMEWORK, reservation.role
    made = pooled.Reservation(reservation.reservation_id, owner, starts_at, until)
    for agent_id in reservation.agent_ids:
        before = state.allocator.reservations.named(agent_id, made.name)
        if before != made:
            state.allocator.reservations.add(agent_id, made)
        agent = state.agents.get(agent_id)
        for offer in list(agent.offers.values()) if agent is not None and before is None else ():
            if not (offer.hold_id or is_within(offer.role, reservation.role)):
                yield from rescind(state, offer, _TOLD, now)


def _clear(state: State, reservation: Reservation, now: float) -> Iterator[Effect]:
    """Ask tasks of others to end, and kill those that were asked and have not ended in time."""
    begins_at = state.at_wall(reservation.times.from_ms)
    grace_s = state.preemptor.rules.grace_s
    if begins_at - grace_s > now or not state.preemptor.may_preempt(reservation.role):
        return
    left = [
        task for task in others_on(state, reservation) if _may_be_asked(state, task, now + grace_s)
    ]
    before = reservation.asked
    kill_at = max(now + grace_s, begins_at)
    reservation.asked = {task.key: before.get(task.key, kill_at) for task in left}
    yield from _ask(state, reservation, [task for task in left if task.key not in before], now)
    for task in left:
        if reservation.asked[task.key] <= now:
            yield from kill(state, task, None, Reason.PREEMPTED, now)


def _may_be_asked(state: State, task: Task, end: float) -> bool:
    """Return whether a task runs and may be preempted at `end`, after its minimum time.

    As in other preemptions, gangs are left alone.
    """
    if task.kill is not None or task.is_absent or task.info.gang is not None:
        return False
    if not state.preemptor.may_preempt(task.role):
        return False
    return protected_until(task, state.preemptor.least_run_s(task.role)) <= end


def _ask(
    state: State, reservation: Reservation, tasks: Iterable[Task], now: float
) -> Iterator[Effect]:
    """Ask frameworks to end these tasks; one message for the tasks of a role on an agent."""
    asked: dict[tuple[object, ...], list[Task]] = {}
    for task in tasks:
        asked.setdefault((task.framework_id, task.role, task.agent_id), []).append(task)
    for listed in asked.values():
        first = listed[0]
        session = state.frameworks[first.framework_id].session
        if session is not None:
            grace_s = reservation.asked[first.key] - now
            ids = tuple(task.task_id for task in listed)
            message = PreemptRequested(ids, first.agent_id, grace_s, first.role, _TOLD)
            yield Send(session, message)
        for task in listed:
            if task.info.preemption.checkpoint_signal:
                grace_s = reservation.asked[task.key] - now
                yield from kill_with_signal(state, task, grace_s, now)


def _release(state: State, reservation: Reservation) -> None:
    for agent_id in reservation.agent_ids:
        state.allocator.reservations.remove(agent_id, reservation.reservation_id)
    reservation.asked.clear()


def _changed(
    reservation: Reservation, change: ReservationChange, tasks: int = 0, operator: str = ""
) -> Happened:
    about = (reservation.reservation_id, reservation.role, change, reservation.agent_ids)
    return Happened(ReservationChanged(*about, reservation.missing, tasks, operator))


def _next_due(state: State, reservation: Reservation, now: float) -> float:
    """Return when a reservation changes next by itself."""
    times = reservation.times
    begins_at = state.at_wall(times.from_ms)
    moments = (
        state.at_wall(reservation.announced_ms),
        begins_at - state.preemptor.rules.grace_s,
        begins_at,
        state.at_wall(times.until_ms),
        *reservation.asked.values(),
    )
    return min(at for at in moments if at > now)
