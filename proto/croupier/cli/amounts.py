"""Words that several views share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from croupier.model.ids import short_id

# An object of croupier.api, read only.
View: TypeAlias = Mapping[str, Any]


def demand_text(demand: View) -> str:
    """Return a demand as text, such as `3 <cpus:1>`."""
    count = "any number of" if demand["count"] is None else demand["count"]
    least, most = demand["min_per_offer"], demand["max_per_offer"]
    portions = "" if (least, most) == (1, None) else f" {least} to {most or 'any'} at once"
    place = f" in {demand['role']}" if demand["role"] else ""
    tests = "".join(f" {constraint}" for constraint in demand["constraints"])
    return f"{count} <{demand['unit']['text']}>{portions}{place}{tests}"


def running(view: View) -> int:
    """Return the number of tasks of a role or framework that have an agent."""
    return int(view["tasks"] - view["queued"])


def named(name: str, own_id: str) -> str:
    """Return the name of an object with its short id, such as `train (1-F16)`."""
    return f"{name} ({short_id(own_id)})" if name and name != own_id else own_id


def many(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 task` or `2 tasks`."""
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"
