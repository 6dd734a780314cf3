"""Reservations, as commands show them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from croupier.cli.table import Column, Table, number, object_id, text
from croupier.cli.terminal import View, many, named
from croupier.model.durations import duration_text, span_text
from croupier.model.reservation import PERIODS


def _moment(time_ms: int) -> str:
    """Return a time in UTC, to the second; those on a minute, to the minute."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.strftime("%Y-%m-%d %H:%MZ" if moment.second == 0 else "%Y-%m-%d %H:%M:%SZ")


def _every(reservation: View) -> str:
    names = {every_ms / 1000: name for name, every_ms in PERIODS.items()}
    return names.get(reservation["every_s"], span_text(reservation["every_s"]))


def _has(reservation: View) -> str:
    """Return how many agents it has, of those that are wanted."""
    return f"{reservation['wanted'] - reservation['missing']}/{reservation['wanted']}"


RESERVATIONS = Table(
    (
        object_id("RESERVATION", "reservation_id"),
        text("ROLE", "role"),
        text("STATE", "state"),
        Column("AGENTS", _has),
        Column("BEGINS", lambda each: _moment(each["begin_time_ms"])),
        Column("ENDS", lambda each: _moment(each["end_time_ms"]), rank=1),
        Column("EVERY", _every, is_optional=True, rank=2),
        number("OTHERS", "others", 3),
    ),
    "nothing is reserved",
)


def reservation_lines(reservation: View) -> Iterator[str]:
    """Yield what a reservation is, of which agents, and what becomes of others' tasks."""
    every = _every(reservation)
    again = f", and again every {every}" if every else ""
    notice = duration_text(reservation["notice_s"])
    times = f"{_moment(reservation['begin_time_ms'])} to {_moment(reservation['end_time_ms'])}"
    yield (
        f"reservation {reservation['reservation_id']} of {many(reservation['wanted'], 'agent')} for"
        f" role {reservation['role']}: {reservation['state']}"
    )
    yield f"  from {times}{again}; announced {notice} before"
    if reservation["missing"]:
        yield f"  it lacks {many(reservation['missing'], 'agent')}"
    agents = [named(each["hostname"], each["agent_id"]) for each in reservation["agents"]]
    if agents:
        yield f"  agents: {', '.join(agents)}"
    if reservation["others"]:
        are = "is" if reservation["others"] == 1 else "are"
        end = f"{are} preempted" if reservation["preempts"] else "may run on (no preemption)"
        yield f"  {many(reservation['others'], 'task')} of others in its way {end}"
