"""Compare `expected` with an outcome: every key is a fact of the outcome, or a failure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

from croupier.lab.vectors.vector import Unreadable, number, shortened


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the cluster; `step` is the part of one more task of each client below."""

    value: Fraction
    step: Fraction


Got = Fraction | int | str | Share | None | Sequence["Got"] | Mapping[str, "Got"]
# A pattern of keys of `expected`, and a function that returns the value to compare with. It gets
# the expected value and the groups of the pattern.
Fact = tuple[str, Callable[..., Got]]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One number or name that is not as expected."""

    where: str
    expected: str
    got: str


def look_up(facts: Sequence[Fact], key: str, wanted: object) -> Got:
    """Return the fact of the pattern that matches `key`, by its groups; raises Unreadable."""
    for pattern, compute in facts:
        match = re.fullmatch(pattern, key)
        if match:
            return compute(wanted, *match.groups())
    raise Unreadable(f"expected key not understood: {shortened(repr(key))}")


def compare(where: str, wanted: object, got: Got, tolerance: Fraction) -> Iterator[Mismatch]:
    """Yield what differs by more than `tolerance`; of an object, only expected keys count."""
    if isinstance(got, Mapping):
        yield from _compare_objects(where, wanted, got, tolerance)
    elif isinstance(got, Share):
        # A tolerance of whole tasks is meant in tasks, also for a share.
        allowed = tolerance * got.step if tolerance >= 1 else tolerance
        yield from _compare_numbers(where, wanted, got.value, allowed)
    elif isinstance(got, Fraction | int):
        yield from _compare_numbers(where, wanted, Fraction(got), tolerance)
    elif isinstance(got, str) or got is None:
        if wanted != got:
            yield Mismatch(where, text_of(wanted), text_of(got))
    else:
        yield from _compare_lists(where, wanted, got, tolerance)


def _compare_objects(
    where: str, wanted: object, got: Mapping[str, Got], tolerance: Fraction
) -> Iterator[Mismatch]:
    if not isinstance(wanted, dict) or not wanted:
        yield Mismatch(where, text_of(wanted), text_of(got))
        return
    for key, value in cast("dict[str, object]", wanted).items():
        if key in got:
            yield from compare(f"{where}.{key}", value, got[key], tolerance)
        else:
            yield Mismatch(f"{where}.{shortened(key)}", text_of(value), "nothing of that name")


def _compare_lists(
    where: str, wanted: object, got: Sequence[Got], tolerance: Fraction
) -> Iterator[Mismatch]:
    if not isinstance(wanted, list) or len(wanted) != len(got):
        yield Mismatch(where, text_of(wanted), text_of(got))
        return
    for index, (want, have) in enumerate(zip(wanted, got, strict=True)):
        yield from compare(f"{where}[{index}]", want, have, tolerance)


def _compare_numbers(
    where: str, wanted: object, got: Fraction, tolerance: Fraction
) -> Iterator[Mismatch]:
    try:
        expected = number(wanted, where)
    except Unreadable:
        yield Mismatch(where, text_of(wanted), text_of(got))
        return
    if abs(expected - got) > tolerance:
        within = f" (within {text_of(tolerance)})" if tolerance else ""
        yield Mismatch(where, text_of(expected) + within, text_of(got))


def text_of(value: object) -> str:
    """Return a value as text: short fractions as they are, long ones as decimals."""
    if isinstance(value, Share):
        return text_of(value.value)
    if isinstance(value, Fraction):
        return str(value) if value.denominator < 10**6 else f"{float(value):.12g}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {text_of(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(text_of(item) for item in value) + "]"
    return "null" if value is None else str(value)
