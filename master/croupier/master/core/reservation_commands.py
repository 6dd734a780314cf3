"""Operator commands for reservations: make one, delete one."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

from croupier.master.core import on_reservation
from croupier.master.core.authorisation import finds_agent, finds_in_role, require
from croupier.master.core.effects import Effect, Happened, Save
from croupier.master.core.events import OperatorCommand
from croupier.master.core.facts import ReservationMade
from croupier.master.core.reservations import (
    MAX_RESERVATIONS,
    NewReservation,
    Reservation,
)
from croupier.master.core.state import State
from croupier.model import ids
from croupier.model.access import Action, role_object
from croupier.model.errors import Conflict, NotFound
from croupier.model.principal import ANONYMOUS, Principal


@dataclass(frozen=True, slots=True)
class ReservationStatus:
    """A reservation at one moment.

    Attributes:
        reservation: a copy of it.
        agents: the chosen agents that may be viewed, by id, with their hostnames.
        others: how many tasks of others on its agents may still run at its begin.
        may_preempt: whether such tasks are preempted.
    """

    reservation: Reservation
    agents: tuple[tuple[ids.AgentId, str], ...]
    others: int
    may_preempt: bool


def reservation_status(
    state: State, reservation: Reservation, viewer: Principal
) -> ReservationStatus:
    """Return the status of a reservation, as the viewer sees it. O(tasks of its agents)."""
    permissions = state.permissions(viewer)
    others = on_reservation.others_on(state, reservation) if state.knows_wall else ()
    return ReservationStatus(
        replace(reservation),
        tuple(
            (agent_id, state.agents[agent_id].hostname)
            for agent_id in reservation.agent_ids
            if agent_id in state.agents
            and finds_agent(permissions, Action.OPERATE_AGENTS, agent_id)
        ),
        len(others),
        state.preemptor.may_preempt(reservation.role),
    )


@dataclass(frozen=True, slots=True)
class CreateReservation(OperatorCommand[ReservationStatus]):
    """Reserve agents for a role.

    `wall_ms`: the time of day.
    """

    wanted: NewReservation
    wall_ms: int
    operator: str = ""
    caller: Principal = ANONYMOUS

    def execute(self, state: State, now: float) -> Generator[Effect, None, ReservationStatus]:
        """Make the reservation.

        Raises:
            InvalidRequest: if it is malformed.
            PermissionDenied: if the caller may not change the role.
            Conflict: if there are too few agents, or others have reserved them, or its id is in
                use.
        """
        wanted = self.wanted
        ids.check_role(wanted.role)
        wanted.check(self.wall_ms)
        permissions = state.permissions(self.caller)
        require(permissions, Action.CHANGE_ROLES, role_object(wanted.role))
        if len(state.reservations) >= MAX_RESERVATIONS:
            raise Conflict(f"there are {MAX_RESERVATIONS} reservations, and no more are possible")
        if wanted.reservation_id in state.reservations:
            raise Conflict(f"there is a reservation {wanted.reservation_id} already")
        if not wanted.reservation_id:
            wanted = replace(wanted, reservation_id=ids.ReservationId(state.next_id("R")))
        state.set_wall(self.wall_ms, now)
        made_by = self.caller.name
        found = on_reservation.choose(state, wanted, made_by, ())
        if len(found) < wanted.agents:
            raise Conflict(
                f"only {len(found)} of {len(state.agents)} agents can be reserved then, and"
                f" {wanted.agents} are wanted: the others have another reservation, are withheld,"
                " have less than the least, fail a constraint, or you may not operate them"
            )
        reservation = Reservation(wanted.reservation_id, wanted, made_by, tuple(found))
        state.reservations[reservation.reservation_id] = reservation
        yield Save(reservation.record())
        about = (reservation.reservation_id, wanted.role, reservation.agent_ids)
        yield Happened(ReservationMade(*about, self.operator))
        yield from on_reservation.review_all(state, now)
        return reservation_status(state, reservation, self.caller)


@dataclass(frozen=True, slots=True)
class DeleteReservation(OperatorCommand[ReservationStatus]):
    """End a reservation, with all its later occurrences."""

    reservation_id: ids.ReservationId
    operator: str = ""
    caller: Principal = ANONYMOUS

    def execute(self, state: State, _now: float) -> Generator[Effect, None, ReservationStatus]:
        """End the reservation, and return what it was.

        Raises:
            NotFound: if there is no such reservation, or the caller may not view its role.
            PermissionDenied: if the caller may not change the role.
        """
        permissions = state.permissions(self.caller)
        found = state.reservations.get(self.reservation_id)
        if found is None or not finds_in_role(permissions, Action.CHANGE_ROLES, found.role):
            wrong = self.reservation_id[: ids.MAX_ID_BYTES]
            raise NotFound(f"no reservation {wrong!r}; it may have ended")
        require(permissions, Action.CHANGE_ROLES, role_object(found.role))
        status = reservation_status(state, found, self.caller)
        yield from on_reservation.end(state, found, "deleted", self.operator)
        return status
