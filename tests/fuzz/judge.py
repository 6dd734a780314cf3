"""The verdict on a run: what no input may cause."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.fuzz.daemons import Daemon

MOST_RSS_MIB: Final = 300
MOST_STEP_S: Final = 0.05
# How much slower an honest peer may become, and a latency that is too short to judge.
MOST_SLOWER: Final = 2.0
TOO_SHORT_MS: Final = 5.0


# p50, p99 and number of each latency, in milliseconds; empty if there are too few.
Latencies = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Finding:
    """A defect; `kind` is one word."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def of_daemon(daemon: Daemon, longest_step_s: float = MOST_STEP_S) -> Iterator[Finding]:
    """Yield the defects that a daemon shows."""
    if not daemon.is_alive:
        yield Finding("end", f"the {daemon.name} has ended with {daemon.end}")
    if daemon.peak_kib > MOST_RSS_MIB * 1024:
        yield Finding("memory", f"the {daemon.name} took {daemon.peak_kib // 1024} MiB")
    yield from of_log(daemon.name, daemon.log)
    for step in steps(daemon.steps):
        if step["seconds"] > longest_step_s:
            took = f"took {step['seconds'] * 1e3:.0f} ms"
            yield Finding("step", f"a step of the {daemon.name} {took}: {step['what']}")


def of_log(name: str, path: Path) -> Iterator[Finding]:
    """Yield the tracebacks and unexpected errors of a log."""
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith("Traceback") or '"exception"' in line:
            yield Finding("traceback", f"the {name} logged {line[:2000]}")


def of_latencies(before: Latencies, during: Latencies) -> Iterator[Finding]:
    """Yield the latencies of honest peers whose p99 has more than doubled."""
    for name, values in during.items():
        if not before.get(name) or not values:
            yield Finding("latency", f"too few of {name} to judge")
            continue
        was_ms, is_ms = before[name][1], values[1]
        if is_ms > MOST_SLOWER * max(was_ms, TOO_SHORT_MS):
            yield Finding("latency", f"p99 of {name} rose from {was_ms:.1f} to {is_ms:.1f} ms")


def of_honest(end: dict[str, Any]) -> Iterator[Finding]:
    """Yield what honest peers have lost."""
    for what in end["lost"]:
        yield Finding("loss", what)


def steps(path: Path) -> Iterable[dict[str, Any]]:
    """Return the long steps that a daemon has noted."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
