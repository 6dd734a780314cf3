"""Scripted events after the first fill, read from the texts of a vector."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from croupier.lab.vectors.numbers import Unreadable, shortened

FILL = "fill to quiescence"
_MAX_TIMES = 100_000
_COUNTS = {"one": 1, "a": 1, "two": 2, "three": 3, "all": None}
_FINISH = re.compile(
    r"(?:repeat (?P<times>\d{1,9})x: ?)?"
    r"(?P<count>one|a|two|three|all|\d{1,9}) tasks? of (?P<client>.+?) finish(?:es)?"
    r"(?P<skip> \(skip if none runs\))?"
    r"(?P<again>, (?:its|their) resources are re-?assigned by the policy to quiescence)?\.?"
)


@dataclass(frozen=True, slots=True)
class Finish:
    """Tasks of a client end, `times` over.

    Attributes:
        count: the number of tasks each time; None is all that run.
        may_skip: the event is ignored if fewer tasks run.
        refills: the policy allocates the freed resources until nothing fits.
    """

    client: str
    times: int
    count: int | None
    may_skip: bool
    refills: bool


@dataclass(frozen=True, slots=True)
class Fill:
    """The policy allocates all free resources until nothing fits."""


def read_events(lines: Sequence[str], clients: Sequence[str]) -> list[Fill | Finish]:
    """Return the events in order; the first fill may be missing from `lines`.

    Raises:
        Unreadable: if a line is not understood, or names no client.
    """
    events = [_read(line.strip(), clients) for line in lines]
    return events if events and isinstance(events[0], Fill) else [Fill(), *events]


def _read(line: str, clients: Sequence[str]) -> Fill | Finish:
    if line.removesuffix(".") == FILL:
        return Fill()
    match = _FINISH.fullmatch(line)
    if match is None:
        raise Unreadable(
            f"event not understood: {shortened(repr(line))} (understood: {FILL!r}, 'repeat Nx: one"
            " task of CLIENT finishes (skip if none runs), its resources are re-assigned by the"
            " policy to quiescence')"
        )
    if match["client"] not in clients:
        raise Unreadable(f"an event names {shortened(match['client'])}, which is not a client")
    times = int(match["times"] or 1)
    if times > _MAX_TIMES:
        raise Unreadable(f"an event is repeated over {_MAX_TIMES} times")
    count = match["count"]
    return Finish(
        client=match["client"],
        times=times,
        count=int(count) if count.isdecimal() else _COUNTS[count],
        may_skip=match["skip"] is not None,
        refills=match["again"] is not None,
    )
