"""Limits of tasks as text, such as `mem:1GB;pids:100`."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from croupier.model.errors import InvalidRequest
from croupier.model.isolation import Limits
from croupier.model.resources import Resources
from croupier.model.scalar import format_scalar, parse_pairs

_COUNTED: Final = ("pids", "files")


def parse_limits(text: str) -> Limits:
    """Read limits such as `pids:4096;mem:1GB`; an empty text sets none.

    Raises:
        InvalidRequest: if a name is unknown, or an amount is not a number in its range.
    """
    given = Resources.parse(text)
    for name, amount in parse_pairs(text, "NAME:AMOUNT").items() if text else ():
        if name not in given.scalars and name in Limits.__slots__:
            raise InvalidRequest(f"the limit of {name} must be above 0, not {amount}")
    names = [each.name for each in fields(Limits)]
    unknown = [*given.ranges, *given.sets, *(name for name in given.scalars if name not in names)]
    if unknown:
        raise InvalidRequest(f"there is no limit of {unknown[0]}; give some of {', '.join(names)}")
    parts = [name for name in _COUNTED if given[name] % 1000]
    if parts:
        raise InvalidRequest(f"the limit of {parts[0]} is a whole number")
    counted = {name: given[name] // 1000 for name in _COUNTED}
    limits = Limits(**{name: given[name] for name in given.scalars} | counted)
    limits.check()
    return limits


def format_limits(limits: Limits) -> str:
    """Return the text that `parse_limits` reads."""
    scale = dict.fromkeys(_COUNTED, 1000)
    amounts = {each.name: getattr(limits, each.name) for each in fields(limits)}
    return ";".join(
        f"{name}:{format_scalar(name, amount * scale.get(name, 1))}"
        for name, amount in amounts.items()
        if amount
    )
