"""Exact amounts of many resources at once.

Scalars are integers of thousandths, ranges and sets are sets, so adding and subtracting the same
amount has no effect. Zero amounts are not kept, so equal amounts are equal values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from croupier.model import ranges as rng
from croupier.model.errors import InvalidRequest
from croupier.model.ranges import Ranges
from croupier.model.scalar import check_milli, format_scalar, parse_pairs, parse_scalar

FIRST: Final = ("cpus", "mem", "disk", "gpus")
MAX_NAMES: Final = 64
MAX_ITEMS: Final = 1_000

# Names that people write for those that agents have.
_MEANT: Final = {
    **dict.fromkeys(("cpu", "core", "cores", "vcpu", "vcpus"), "cpus"),
    **dict.fromkeys(("memory", "ram"), "mem"),
    "disks": "disk",
    "gpu": "gpus",
    "port": "ports",
    **{name: name for name in (*FIRST, "ports")},
}

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}\Z", re.ASCII)
_ITEM = re.compile(r"[^\s,{}\[\];:]{1,255}\Z")


class Resources:
    """The resources of an agent, an offer or a task. Immutable.

    `Resources.parse("cpus:1.5;mem:8GB;ports:[31000-32000]")` reads the form that `str` writes.
    `a <= b` means that `a` fits in `b`. This is a partial order: `not a <= b` does not mean
    `a > b`.

    Attributes:
        scalars: thousandths of a unit (of a MiB for mem and disk), by name; all above 0.
        ranges: inclusive ranges of whole numbers, by name; none empty.
        sets: items by name; none empty.
    """

    __slots__ = ("ranges", "scalars", "sets")

    scalars: Mapping[str, int]
    ranges: Mapping[str, Ranges]
    sets: Mapping[str, frozenset[str]]

    def __init__(
        self,
        scalars: Mapping[str, int] | None = None,
        ranges: Mapping[str, Ranges] | None = None,
        sets: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        """Check and keep the amounts.

        Raises InvalidRequest if a name or an item is illegal, a name is used for two kinds, an
        amount is negative or too large, or there are over 64 names.
        """
        kept_scalars = {n: m for n, m in (scalars or {}).items() if check_milli(n, m)}
        kept_ranges = {n: rng.make_ranges(r) for n, r in (ranges or {}).items() if r}
        kept_sets = {n: _check_items(n, s) for n, s in (sets or {}).items() if s}
        check_names([*kept_scalars, *kept_ranges, *kept_sets])
        self.scalars, self.ranges, self.sets = kept_scalars, kept_ranges, kept_sets

    @classmethod
    def parse(cls, text: str) -> Resources:
        """Read `name:amount` pairs joined by `;`, as in `cpus:4;mem:8GB;ports:[31000-32000]`.

        Raises InvalidRequest if `text` has another form; the message says where.
        """
        scalars: dict[str, int] = {}
        ranges: dict[str, Ranges] = {}
        sets: dict[str, frozenset[str]] = {}
        pairs = parse_pairs(text, "NAME:AMOUNT (example: cpus:4;mem:8GB)")
        check_spelling(pairs)
        for name, value in pairs.items():
            if value.startswith("["):
                ranges[name] = rng.parse_ranges(value)
            elif value.startswith("{"):
                sets[name] = _parse_set(name, value)
            else:
                scalars[name] = parse_scalar(name, value)
        return cls(scalars, ranges, sets)

    def __str__(self) -> str:
        parts = [f"{n}:{format_scalar(n, self.scalars[n])}" for n in in_order(self.scalars)]
        parts += [f"{n}:{rng.format_ranges(self.ranges[n])}" for n in sorted(self.ranges)]
        parts += [f"{n}:{{{','.join(sorted(self.sets[n]))}}}" for n in sorted(self.sets)]
        return ";".join(parts)

    def __repr__(self) -> str:
        return f"Resources.parse({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Resources)
            and self.scalars == other.scalars
            and self.ranges == other.ranges
            and self.sets == other.sets
        )

    def __hash__(self) -> int:
        return hash(frozenset(self.scalars.items()))

    def __bool__(self) -> bool:
        """Return whether any amount is above 0."""
        return bool(self.scalars or self.ranges or self.sets)

    def __getitem__(self, name: str) -> int:
        """Return the thousandths of the scalar `name`; 0 if there are none."""
        return self.scalars.get(name, 0)

    def __add__(self, other: Resources) -> Resources:
        """Add `other`; raises ValueError if a number or an item is in both: none is held twice."""
        if not self:
            return other
        if not other:
            return self
        scalars = dict(self.scalars)
        for name, milli in other.scalars.items():
            scalars[name] = scalars.get(name, 0) + milli
        ranges, sets = self.ranges, self.sets
        if other.ranges:
            ranges = dict(ranges)
            for name, more in other.ranges.items():
                ranges[name] = rng.union(ranges.get(name, ()), more)
        if other.sets:
            sets = dict(sets)
            for name, items in other.sets.items():
                if not items.isdisjoint(sets.get(name, frozenset())):
                    raise ValueError(f"{name}: an item is in both")
                sets[name] = sets.get(name, frozenset()) | items
        return _made(scalars, ranges, sets)

    def __sub__(self, other: Resources) -> Resources:
        """Subtract `other`; raises ValueError if it does not fit in this."""
        if not other:
            return self
        if not other <= self:
            raise ValueError(f"cannot take {other} from {self or 'nothing'}")
        scalars = dict(self.scalars)
        for name, milli in other.scalars.items():
            if scalars[name] == milli:
                del scalars[name]
            else:
                scalars[name] -= milli
        ranges, sets = self.ranges, self.sets
        if other.ranges:
            rest = {n: rng.difference(r, other.ranges.get(n, ())) for n, r in ranges.items()}
            ranges = {n: r for n, r in rest.items() if r}
        if other.sets:
            left = {n: s - other.sets.get(n, frozenset()) for n, s in sets.items()}
            sets = {n: s for n, s in left.items() if s}
        return _made(scalars, ranges, sets)

    def __le__(self, other: Resources) -> bool:
        mine, theirs = self.scalars, other.scalars
        for name, milli in mine.items():
            if milli > theirs.get(name, 0):
                return False
        if self.ranges:
            for name, ranges in self.ranges.items():
                if not rng.contains(other.ranges.get(name, ()), ranges):
                    return False
        if self.sets:
            for name, items in self.sets.items():
                if not items <= other.sets.get(name, frozenset()):
                    return False
        return True

    def __ge__(self, other: Resources) -> bool:
        return other <= self

    def excess(self, free: Resources) -> str:
        """Describe the first amount of this that does not fit in `free`; empty if all fit."""
        for name in in_order(self.scalars):
            if self.scalars[name] > free[name]:
                needs = format_scalar(name, self.scalars[name])
                return f"{name}:{needs} is more than {name}:{format_scalar(name, free[name])}"
        for name, ranges in self.ranges.items():
            if not rng.contains(free.ranges.get(name, ()), ranges):
                return f"{name} that are not there"
        for name, items in self.sets.items():
            if not items <= free.sets.get(name, frozenset()):
                return f"{name} that are not there"
        return ""

    def within(self, room: Resources) -> Resources:
        """Return the part of this that fits in `room`."""
        scalars = {n: min(m, room[n]) for n, m in self.scalars.items() if room[n]}
        ranges = {n: rng.intersection(r, room.ranges.get(n, ())) for n, r in self.ranges.items()}
        sets = {n: s & room.sets.get(n, frozenset()) for n, s in self.sets.items()}
        return _made(
            scalars, {n: r for n, r in ranges.items() if r}, {n: s for n, s in sets.items() if s}
        )

    def beside(self, kept: Resources) -> Resources:
        """Return what is left beside the scalars and items of `kept`, which may be more."""
        scalars = {n: m - kept[n] for n, m in self.scalars.items() if m > kept[n]}
        sets = self.sets
        if kept.sets:
            left = {n: s - kept.sets.get(n, frozenset()) for n, s in sets.items()}
            sets = {n: s for n, s in left.items() if s}
        return _made(scalars, self.ranges, sets)

    def units_within(self, free: Resources, most: int) -> int:
        """Return how many times this fits in `free`, at most `most`.

        A scalar that `free` holds as ranges counts numbers: a unit of `ports:2` takes
        any two ports.
        """
        units = most
        for name, milli in self.scalars.items():
            have = free.scalars.get(name, 0)
            if not have and name in free.ranges:
                have = rng.count(free.ranges[name]) * 1000
            units = min(units, have // milli)
            if not units:
                return 0
        return max(units, 0)

    def carve(self, free: Resources, units: int) -> Resources:
        """Return `units` times this out of `free`; of ranges, the lowest numbers.

        Raises ValueError if `free` has less.
        """
        if units < 1:
            return NOTHING
        scalars: dict[str, int] = {}
        ranges: dict[str, Ranges] = {}
        for name, milli in self.scalars.items():
            if name in free.ranges and name not in free.scalars:
                ranges[name] = rng.lowest(free.ranges[name], -(-milli * units // 1000))
            elif milli * units > free[name]:
                raise ValueError(f"cannot carve {units} times {self} from {free or 'nothing'}")
            else:
                scalars[name] = milli * units
        return _made(scalars, ranges, {})

    def counted(self) -> Resources:
        """Return the amounts that were carved to this: ranges are numbers of their values."""
        numbers = {name: rng.count(ranges) * 1000 for name, ranges in self.ranges.items()}
        return _made({**self.scalars, **numbers}, {}, self.sets)

    @property
    def parts(self) -> int:
        """The number of scalars, ranges and items."""
        pieces = sum(map(len, self.ranges.values())) + sum(map(len, self.sets.values()))
        return len(self.scalars) + pieces

    def everyday(self) -> Resources:
        """Return only cpus, mem, disk and gpus."""
        return _made({n: m for n, m in self.scalars.items() if n in FIRST}, {}, {})

    def within_bounds(self) -> Resources:
        """Return this with at most as many ranges as a message may have: the lowest."""
        if all(len(ranges) <= rng.MAX_RANGES for ranges in self.ranges.values()):
            return self
        bounded = {name: ranges[: rng.MAX_RANGES] for name, ranges in self.ranges.items()}
        return _made(self.scalars, bounded, self.sets)


def in_order(names: Collection[str]) -> list[str]:
    """Return names of scalars in the order in which people read them."""
    known = [name for name in FIRST if name in names]
    return known + sorted(name for name in names if name not in FIRST)


def total_of(amounts: Iterable[Resources]) -> Resources:
    """Return the sum of the scalars of `amounts`, without ranges and sets."""
    scalars: dict[str, int] = {}
    for amount in amounts:
        for name, milli in amount.scalars.items():
            scalars[name] = scalars.get(name, 0) + milli
    return _made(scalars, {}, {})


def sum_of(amounts: Iterable[Resources]) -> Resources:
    """Return the sum of `amounts` in linear time; raises ValueError if two hold one item."""
    scalars: dict[str, int] = {}
    ranges: dict[str, list[Ranges]] = {}
    sets: dict[str, list[frozenset[str]]] = {}
    for amount in amounts:
        for name, milli in amount.scalars.items():
            scalars[name] = scalars.get(name, 0) + milli
        for name, numbers in amount.ranges.items():
            ranges.setdefault(name, []).append(numbers)
        for name, items in amount.sets.items():
            sets.setdefault(name, []).append(items)
    unions = {name: frozenset().union(*parts) for name, parts in sets.items()}
    for name, parts in sets.items():
        if len(unions[name]) < sum(map(len, parts)):
            raise ValueError(f"{name}: an item is in two of them")
    return _made(scalars, {name: rng.union(*parts) for name, parts in ranges.items()}, unions)


def check_names(names: list[str]) -> None:
    """Check the names of the resources of one amount.

    Raises InvalidRequest if one is illegal or given twice, or there are over 64.
    """
    if len(names) > MAX_NAMES:
        raise InvalidRequest(f"more than {MAX_NAMES} resources")
    for name in names:
        if not _NAME.match(name):
            raise InvalidRequest(f"{name[:80]!r} is not the name of a resource")
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise InvalidRequest(f"{', '.join(twice)} is given as two kinds of resource")


def check_spelling(names: Iterable[str]) -> None:
    """Raise InvalidRequest if people mean another resource by one of these names."""
    for name in names:
        meant = _MEANT.get(name.lower(), name)
        if meant != name:
            raise InvalidRequest(
                f"unknown resource {name!r}: did you mean {meant}? A resource of your own needs"
                f" another name, such as my-{name.lower()}"
            )


def _made(
    scalars: Mapping[str, int], ranges: Mapping[str, Ranges], sets: Mapping[str, frozenset[str]]
) -> Resources:
    """Return an amount of parts that are known to be valid, without the constructor's checks."""
    made = Resources.__new__(Resources)
    made.scalars, made.ranges, made.sets = scalars, ranges, sets
    return made


def _parse_set(name: str, text: str) -> frozenset[str]:
    items = [item.strip() for item in text.removeprefix("{").removesuffix("}").split(",")]
    items = [item for item in items if item]
    if not text.endswith("}"):
        raise InvalidRequest(f"{name}: {text!r} is not a set (example: {{a,b}})")
    if len(set(items)) < len(items):
        raise InvalidRequest(f"{name}: an item is given twice")
    return frozenset(items)


def _check_items(name: str, items: frozenset[str]) -> frozenset[str]:
    if len(items) > MAX_ITEMS:
        raise InvalidRequest(f"{name}: more than {MAX_ITEMS} items")
    for item in items:
        if not _ITEM.match(item):
            raise InvalidRequest(f"{name}: {item[:80]!r} cannot be an item (example: {{a,b}})")
    return items


NOTHING: Final = Resources()
