"""Amounts of one resource, in whole thousandths of its unit.

Amounts are integers, never floats. `mem` and `disk` count MiB, and the suffixes KB, MB, GB, TB (or
KiB, MiB, ...) are powers of 1024, as in Mesos.
"""

from __future__ import annotations

import re
from fractions import Fraction

from croupier.model.errors import InvalidRequest

MILLI = 1000
MAX_MILLI = 2**53
SIZED = frozenset({"mem", "disk"})

_AMOUNT = re.compile(
    r"(?P<number>\d{1,20}(?:\.\d{1,20})?|\.\d{1,20})\s*(?P<suffix>[A-Za-z]*)\Z", re.ASCII
)
# A number other than 0.
_BARE = re.compile(r"[\d.]*[1-9][\d.]*\Z", re.ASCII)
_MIB_OF = {"": Fraction(1)} | {
    letter: Fraction(1024) ** (power - 1) for power, letter in enumerate("KMGTP")
}


def parse_pairs(text: str, form: str) -> dict[str, str]:
    """Read `NAME:VALUE` pairs joined by `;`; errors describe one as `form`.

    Raises InvalidRequest if a pair is malformed, or a name is given twice.
    """
    pairs: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        name, _, value = map(str.strip, part.partition(":"))
        if not value:
            raise InvalidRequest(f"{part[:80]!r} is not {form}")
        if name in pairs:
            raise InvalidRequest(f"{name[:80]} is given twice")
        pairs[name] = value
    return pairs


def parse_scalar(name: str, text: str) -> int:
    """Return the thousandths in `text`, such as `.5` or, for mem and disk, `8GB`.

    Raises InvalidRequest if it is not a number, negative, too large, has a unit that `name` does
    not take, or is finer than a thousandth.
    """
    match = _AMOUNT.match(text.strip())
    if match is None:
        raise InvalidRequest(f"{name}: {text.strip()!r} is not an amount (examples: 0.5, 4, 8GB)")
    milli = Fraction(match["number"]) * _unit(name, match["suffix"]) * MILLI
    if milli.denominator != 1:
        raise InvalidRequest(f"{name}: {text.strip()} is finer than a thousandth")
    return check_milli(name, int(milli))


def check_unit(name: str, text: str) -> str:
    """Return `text` if it is no bare number, or if `name` takes no unit.

    Users of other systems mean bytes, kilobytes or megabytes by a bare number. Raises
    InvalidRequest if it lacks its unit.
    """
    if name in SIZED and _BARE.match(text.strip()):
        bare = text.strip()
        raise InvalidRequest(f"{name}: {bare} has no unit; write {bare}MB or {bare}GB")
    return text


def check_units(text: str) -> None:
    """Check the amounts in `NAME:AMOUNT;...`; raises as `check_unit` and `parse_pairs`."""
    for name, amount in parse_pairs(text, "NAME:AMOUNT (example: cpus:4;mem:8GB)").items():
        check_unit(name, amount)


def check_milli(name: str, milli: int) -> int:
    """Return `milli` if it can be an amount, from 0 to 2**53; else raise InvalidRequest."""
    if milli < 0:
        raise InvalidRequest(f"{name}: {format_milli(milli)} is negative")
    if milli > MAX_MILLI:
        raise InvalidRequest(f"{name}: {format_milli(milli)} is too large")
    return milli


def format_scalar(name: str, milli: int) -> str:
    """Return `milli` thousandths as people write them; `parse_scalar` reads it back."""
    if name not in SIZED:
        return format_milli(milli)
    gib = 1024 * MILLI
    if milli >= gib and milli * 1000 % gib == 0:
        return format_milli(milli // 1024 if milli % gib == 0 else milli * 1000 // gib) + "GB"
    return format_milli(milli) + "MB"


def format_milli(milli: int) -> str:
    """Return `milli` thousandths as a plain decimal number."""
    sign, milli = ("-", -milli) if milli < 0 else ("", milli)
    whole, rest = divmod(milli, MILLI)
    return f"{sign}{whole}" + (f".{rest:03d}".rstrip("0") if rest else "")


def _unit(name: str, suffix: str) -> Fraction:
    letter = suffix.upper().removesuffix("B").removesuffix("I") if suffix else ""
    if letter not in _MIB_OF or (suffix and (name not in SIZED or not letter)):
        takes = "takes KB, MB, GB, TB or PB" if name in SIZED else "takes no unit"
        raise InvalidRequest(f"{name}: unknown unit {suffix!r}; {name} {takes}")
    return _MIB_OF[letter]
