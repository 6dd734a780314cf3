"""`croupier reserve` and `unreserve`: reserve agents for a role from a certain time on."""

from __future__ import annotations

import time
from functools import partial
from typing import Annotated, Final, Literal

from cyclopts import Parameter

from croupier.api.objects import as_object
from croupier.cli.connection import Master
from croupier.cli.flags import CHANGE, LOCAL, Change, JsonFlag, MasterFlag, YesFlag
from croupier.cli.moments import parse_moment
from croupier.ctl.app import app
from croupier.ctl.lists import all_of
from croupier.ctl.operation import Preview, ask, confirm, print_result
from croupier.ctl.views.reservation import reservation_lines
from croupier.model.attributes import parse_constraint
from croupier.model.durations import parse_duration
from croupier.model.errors import NotFound
from croupier.model.reservation import DEFAULT_NOTICE, PERIODS
from croupier.model.resources import NOTHING, Resources
from croupier.process.cli import read_by
from croupier.v1 import operator_pb2 as pb
from croupier.wire.resources import constraint_to_wire, resources_to_wire

_NOTICE_S: Final = parse_duration(DEFAULT_NOTICE)


@app.command
def reserve(
    *,
    role: str,
    begin: Annotated[str, Parameter(name="--from")],
    end: Annotated[str, Parameter(name="--to")],
    agents: int = 1,
    every: Literal["day", "week"] | None = None,
    notice: Annotated[float, read_by(parse_duration)] = _NOTICE_S,
    least: Annotated[Resources, read_by(Resources.parse)] = NOTHING,
    constraint: Annotated[list[str] | None, Parameter(negative="")] = None,
    reservation_id: Annotated[str, Parameter(name="--id")] = "",
    master: MasterFlag = LOCAL,
    as_json: JsonFlag = False,
) -> None:
    """Reserve agents for a role and the roles below it, from a certain time on.

    From the notice on, other roles are offered the agents only for tasks with a time
    (max_completion) that ends before. Tasks of others that still run as it begins are preempted, if
    the role may preempt. The master chooses the agents, first those with the fewest such tasks, and
    replaces an agent that is lost, drained or deactivated.

    Args:
        role: The role.
        begin: When it begins: a time such as 2026-12-01T08:00 (of this machine, or with Z in UTC),
            +2h from now on, or now.
        end: When it ends: a time, or +4h after the begin.
        agents: The number of agents.
        every: Begin again every day or week, until it is deleted.
        notice: How long before the begin others are kept away from the agents, such as 30m.
        least: What each agent has at least in all, such as "cpus:8;gpus:1".
        constraint: A condition on each agent, such as "rack equals r1"; may be repeated.
        reservation_id: The id of the reservation; without it, the master makes one.
    """
    begin_ms = parse_moment(begin, time.time_ns() // 10**6)
    request = pb.CreateReservationRequest(
        role=role,
        agents=max(agents, 0),
        begin_time_ms=begin_ms,
        end_time_ms=parse_moment(end, begin_ms),
        every_ms=PERIODS[every or ""],
        notice_ms=round(1000 * notice),
        least=resources_to_wire(least),
        constraints=[constraint_to_wire(parse_constraint(text)) for text in constraint or ()],
        reservation_id=reservation_id,
    )
    view = as_object(ask(master, "CreateReservation", request))["reservation"]
    print_result(view, *reservation_lines(view), as_json=as_json)


@app.command
def unreserve(reservation_id: str, /, *, yes: YesFlag = False, change: Change = CHANGE) -> None:
    """Delete a reservation, with all its later occurrences.

    Its agents are offered to all at once. Tasks on them run on.

    Args:
        reservation_id: The id of the reservation.
    """
    preview = partial(_preview, reservation_id=reservation_id)
    confirmed = confirm(reservation_id, preview, change, yes=yes)
    if confirmed is not None:
        request = pb.DeleteReservationRequest(reservation_id=confirmed)
        view = as_object(ask(change.master, "DeleteReservation", request))["reservation"]
        print_result(view, f"reservation {confirmed} is deleted", as_json=change.as_json)


async def _preview(master: Master, reservation_id: str) -> Preview:
    """Return what would be deleted; raises NotFound if there is no such reservation."""
    for view in await all_of(master, "reservations", text=reservation_id):
        if view["reservation_id"] == reservation_id:
            lines = [*reservation_lines(view), "  if it is deleted, its agents are offered to all"]
            return Preview(reservation_id, {"reservation": view}, lines)
    raise NotFound(f"no reservation {reservation_id!r}; croupier reservations lists them")
