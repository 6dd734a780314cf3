"""Isolation of agents, and limits and use of tasks, as commands show them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from croupier.cli.terminal import View
from croupier.model.access import AGENT_USER, OWN_USER
from croupier.model.durations import duration_text
from croupier.model.isolation import Feature
from croupier.model.limits import MIB
from croupier.model.scalar import format_scalar

# A level is shown if the agent has this feature of it.
_LEVELS: Final = {
    "process": Feature.FILES,
    "cgroup": Feature.MEMORY,
    "namespaces": Feature.NAMESPACES,
    "container": Feature.IMAGES,
}


def levels_text(features: Collection[str]) -> str:
    """Return the levels that an agent with these features has, such as `process,cgroup`."""
    levels = [level for level, feature in _LEVELS.items() if feature.value in features]
    return ",".join(levels) or "none"


def default_user_text(user: str) -> str:
    """Return the account of tasks that name no user, in words."""
    words = {OWN_USER: "a uid of their own", AGENT_USER: "the agent's own account"}
    return words.get(user, user)


def isolation_text(isolation: View) -> str:
    """Return the isolation that a task asks for, in words; empty if none."""
    words = ["namespaces of its own"] if isolation["namespaces"] else []
    words += ["no network"] if isolation["no_network"] else []
    words += [f"image {isolation['image']}"] if isolation["image"] else []
    return ", ".join(words)


def use_lines(resources: View, limits: View, usage: View | None) -> Iterator[str]:
    """Yield what a task has used beside its limits or its resources; `usage` None is unknown."""
    known, has, most_s = usage or {}, resources["milli"], limits["max_completion_s"]
    rows = (
        ("memory", _size(known.get("memory_peak_bytes")), "peak", _scalar("mem", limits, has)),
        ("disk", _size(known.get("disk_bytes")), "", _scalar("disk", limits, has)),
        ("cpus", _cpu_time(known.get("cpu_s")), "", _scalar("cpus", limits, has)),
        ("processes", _count(known.get("pids_peak")), "peak", _limit(_count(limits["pids"]))),
        ("open files", "", "", _limit(_count(limits["files"]))),
        ("read", _size(known.get("read_bytes")), "", ""),
        ("written", _size(known.get("written_bytes")), "", ""),
        ("time", "", "", "" if most_s is None else _limit(duration_text(most_s))),
    )
    for name, used, word, bound in rows:
        use = f"{used} {word}".rstrip() if used else ""
        if use or bound:
            # Without a use, `of 1GB` would be part of nothing.
            amounts = (use, bound) if use else (bound.removeprefix("of "),)
            yield f"  {name}: {', '.join(filter(None, amounts))}"


def _size(number: int | None) -> str:
    if number is None:
        return ""
    if number < MIB:
        return f"{number / 1024:.0f}KB"
    return f"{number / MIB:.1f}MB" if number < 1024 * MIB else f"{number / MIB / 1024:.2f}GB"


def _scalar(name: str, limits: View, has: Mapping[str, int]) -> str:
    """Return the limit that a task names; else what it is charged for."""
    if limits[name]:
        return _limit(format_scalar(name, limits[name]))
    return f"of {format_scalar(name, has[name])}" if has.get(name) else ""


def _limit(amount: str) -> str:
    return f"limit {amount}" if amount else ""


def _count(number: int | None) -> str:
    return "" if number is None else str(number)


def _cpu_time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds:.1f} s" if seconds < 60 else duration_text(seconds)
