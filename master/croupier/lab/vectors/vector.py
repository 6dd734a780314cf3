"""One vector: a question of fairness and its expected answer, in exact numbers.

Vectors write numbers as integers, decimals, or fractions such as "25/6".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

_TEXT = re.compile(r"[+-]?\d{1,60}(\.\d{1,60})?(/\d{1,60})?\Z", re.ASCII)
_DECIMAL = re.compile(r"[+-]?\d{1,60}(\.\d{1,60})?([eE][+-]?\d{1,2})?\Z", re.ASCII)
_MAX_SHOWN = 40


class Unreadable(ValueError):
    """A vector is against the schema; the message says how."""


def in_range(text: str) -> str:
    """Return a JSON number; raises Unreadable for over 60 digits, or an exponent beyond 99."""
    if not _DECIMAL.match(text):
        raise Unreadable(f"number {shortened(text)} is out of range")
    return text


def number(value: object, what: str) -> Fraction:
    """Return `value` as a Fraction; raises Unreadable, with `what`, if it is no number."""
    if isinstance(value, Fraction):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Fraction(value)
    if isinstance(value, str) and _TEXT.match(value):
        try:
            return Fraction(value)
        except (ValueError, ZeroDivisionError):
            pass
    raise Unreadable(f"{what} is {shortened(repr(value))}, not a number")


def not_negative(value: object, what: str) -> Fraction:
    """Return `value` as a Fraction that is 0 or more; raises Unreadable if it is not."""
    found = number(value, what)
    if found < 0:
        raise Unreadable(f"{what} is {found}, which is below 0")
    return found


def positive(value: object, what: str) -> Fraction:
    """Return `value` as a Fraction above 0; raises Unreadable if it is not."""
    found = number(value, what)
    if found <= 0:
        raise Unreadable(f"{what} is {found}, which is not above 0")
    return found


def count(value: object, what: str) -> int:
    """Return `value` as a whole number that is 0 or more; raises Unreadable if it is not."""
    found = not_negative(value, what)
    if found.denominator != 1:
        raise Unreadable(f"{what} is {found}, not a whole number")
    return found.numerator


def shortened(text: str) -> str:
    """Return `text`, cut so that a line stays readable."""
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."


Amounts = tuple[Fraction, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """`count` identical machines; `slots` is for the policy of that name."""

    count: int
    capacity: Amounts
    slots: int | None


@dataclass(frozen=True, slots=True)
class Vector:
    """The checked fields of a vector. Paths name clients and pools.

    Attributes:
        capacity: totals of the cluster, by resource; empty if there are none.
        nodes: groups of machines; None is one machine with all of `capacity`.
        demands: the amounts of one task of each client; clients in the order listed.
        weights: of clients and pools that have one: one number per resource.
        are_scalar: the paths whose weight is a single number.
        backlog: the most tasks of a client; None or absent is without end.
        tie_break: the order of nodes on exact ties.
        events: the scripted events, as text.
        also: other policies that must give the same.
        guarantee: floors, of clients and pools.
        initial: tasks that run before.
        usage: the amounts that clients hold before.
        hints: the amounts that clients declare for a task, if they differ.
        active: the clients that want tasks; None is all.
        others: all vectors of the file; one of them holds the truth behind a lie.
    """

    name: str
    source: str
    policy: str
    mode: str
    resources: tuple[str, ...]
    capacity: Amounts
    nodes: tuple[Group, ...] | None
    demands: Mapping[str, Amounts]
    weights: Mapping[str, Amounts]
    are_scalar: frozenset[str]
    backlog: Mapping[str, Fraction | None]
    tie_break: tuple[str, ...]
    events: tuple[str, ...]
    expected: Mapping[str, object]
    tolerance: Fraction
    note: str
    also: tuple[str, ...]
    guarantee: Mapping[str, Amounts]
    initial: Mapping[str, int]
    usage: Mapping[str, Amounts]
    hints: Mapping[str, Amounts]
    active: frozenset[str] | None
    placement: str | None
    others: Sequence[Vector] = ()

    @property
    def clients(self) -> tuple[str, ...]:
        """The clients in the order of `demands` or, without these, of `usage`."""
        return tuple(self.demands or self.usage)

    def check_client(self, name: str) -> None:
        """Raise Unreadable for a name in an expected key that is no client."""
        if name not in self.clients:
            raise Unreadable(f"expected names {shortened(name)}, which is not a client")

    def pools(self) -> tuple[str, ...]:
        """Return every node above a client, in order of first mention, parents first."""
        found: dict[str, None] = {}
        for client in self.clients:
            parts = client.split("/")
            found.update({"/".join(parts[:depth]): None for depth in range(1, len(parts))})
        return tuple(found)

    def machines(self) -> list[Amounts]:
        """Return the capacity of each machine, in the order in which machines are filled."""
        if self.nodes is None:
            return [self.capacity]
        return [group.capacity for group in self.nodes for _ in range(group.count)]

    def total(self) -> list[Fraction]:
        """Return the amounts of all machines together."""
        columns = zip((Fraction(0),) * len(self.resources), *self.machines(), strict=True)
        return [sum(column, Fraction(0)) for column in columns]

    def is_active(self, client: str) -> bool:
        """Return whether a client wants tasks."""
        return self.active is None or client in self.active

    def weight(self, path: str) -> Amounts:
        """Return the weight by resource; 1 is the default."""
        return self.weights.get(path, (Fraction(1),) * len(self.resources))
