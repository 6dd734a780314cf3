"""Reservations on the wire: what callers want, and what they view."""

from __future__ import annotations

from croupier.master.core.reservation_commands import ReservationStatus
from croupier.master.core.reservations import NewReservation, Times
from croupier.model.attributes import MAX_CONSTRAINTS, check_constraints
from croupier.model.ids import ReservationId, check_role
from croupier.v1 import operator_pb2 as pb
from croupier.wire.resources import (
    check_count,
    constraint_from_wire,
    constraint_to_wire,
    resources_from_wire,
    resources_to_wire,
)


def wanted_from_wire(request: pb.CreateReservationRequest) -> NewReservation:
    """Return what a request wants to reserve; raises InvalidRequest if it is malformed."""
    check_count(len(request.constraints), MAX_CONSTRAINTS, "constraints")
    return NewReservation(
        check_role(request.role),
        request.agents,
        Times(request.begin_time_ms, request.end_time_ms, request.every_ms),
        resources_from_wire(request.least),
        check_constraints(map(constraint_from_wire, request.constraints)),
        request.notice_ms,
        ReservationId(request.reservation_id),
    )


def view_reservation(status: ReservationStatus) -> pb.ReservationView:
    """Return the view of a reservation."""
    reservation, wanted = status.reservation, status.reservation.wanted
    return pb.ReservationView(
        reservation_id=reservation.reservation_id,
        role=wanted.role,
        state=reservation.state.value,
        begin_time_ms=wanted.times.from_ms,
        end_time_ms=wanted.times.until_ms,
        every_ms=wanted.times.every_ms,
        notice_ms=wanted.notice_ms,
        agents=[
            pb.ReservedAgent(agent_id=agent_id, hostname=hostname)
            for agent_id, hostname in status.agents
        ],
        wanted=wanted.agents,
        missing=reservation.missing,
        least=resources_to_wire(wanted.least),
        constraints=map(constraint_to_wire, wanted.constraints),
        others=status.others,
        preempts=status.may_preempt,
        made_by=reservation.made_by,
    )
