"""Holds, as commands show them."""

from __future__ import annotations

from collections.abc import Iterator

from croupier.cli.table import Column, Table, amount, number, object_id, text
from croupier.cli.terminal import View, many, named
from croupier.model.durations import span_text


def owner_text(hold: View) -> str:
    """Return for whom resources are held."""
    if hold["framework_id"]:
        return f"framework {named(hold['framework_name'], hold['framework_id'])}"
    return f"role {hold['role']}"


def _left_text(hold: View) -> str:
    left_s = hold["ttl_left_s"]
    return "" if left_s is None else span_text(left_s)


def _kind(hold: View) -> str:
    kind = "volume" if hold["volume"] else ""
    return "orphan" if hold["orphan"] else kind


def _unused(hold: View) -> str:
    """Return what would be offered to its owner: nothing of a volume."""
    return "" if hold["volume"] else str(hold["unused"]["text"])


def _bound(hold: View) -> str:
    """Return what keeps the files of a volume to its size."""
    return "kernel" if hold["bounded"] else "none"


_WHERE_AND_WHOSE = (
    object_id("AGENT", "agent_id", 3),
    text("HOST", "hostname", 4),
    Column("FOR", owner_text),
    text("ROLE", "role", 5),
    amount("RESOURCES", "resources"),
)
HOLDS = Table(
    (
        object_id("HOLD", "hold_id"),
        Column("KIND", _kind, is_optional=True),
        *_WHERE_AND_WHOSE,
        Column("UNUSED", _unused, rank=1),
        number("TASKS", "tasks", 2),
        Column("ENDS IN", _left_text, rank=2),
    ),
    "nothing is held",
)
VOLUMES = Table(
    (
        object_id("VOLUME", "hold_id"),
        Column("KIND", _kind, is_optional=True),
        *_WHERE_AND_WHOSE,
        Column("BOUND", _bound, rank=1),
        number("TASKS", "tasks", 2),
    ),
    "there are no volumes",
)


def hold_lines(hold: View) -> Iterator[str]:
    """Yield what a hold is, and whose."""
    agent = named(hold["hostname"], hold["agent_id"])
    left = f", for another {_left_text(hold)}" if hold["ttl_left_s"] is not None else ""
    if hold["orphan"]:
        yield f"a volume of agent {agent} without a hold, once of {owner_text(hold)}"
        return
    what = "volume" if hold["volume"] else "hold"
    yield f"{what} {hold['hold_id']}: {hold['resources']['text']} of agent {agent}"
    tasks = f"; {many(hold['tasks'], 'task')} in it" if hold["tasks"] else ""
    yield f"  for {owner_text(hold)}{left}{tasks}"
