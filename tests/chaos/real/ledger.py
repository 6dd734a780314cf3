"""The ledger of what really ran: each task appends a line when it starts and before it ends.

An executor appends one for each message that it gets, too. A task that uses a volume appends one
with the tasks that have used it. A task that keeps minutes appends further ones.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

# What a task that keeps minutes notes with the time: it began, was asked to save its state, was
# stopped by SIGTERM, came to its end; another run of it was there.
NOTES = ("began", "saved", "stopped", "done", "twice")


@dataclass(frozen=True, slots=True)
class Told:
    """What the latest run of a task was told by its agent; `-` for nothing.

    Attributes:
        parts: the part of each of its devices.
    """

    rank: str
    size: str
    hosts: str
    devices: str
    parts: str


@dataclass(slots=True)
class Ledger:
    """How often each task started and ended, and its pids.

    Attributes:
        heard: how often each executor got each message, by its number.
        saw: the tasks that had used the volume of a task, and itself.
        told: what each task was told of its gang and of its devices.
        notes: the times of each kind of note of a task, in seconds since the epoch.
        lines: the number of the first line of that kind about a task.
    """

    starts: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    heard: Counter[tuple[str, int]] = field(default_factory=Counter)
    saw: dict[str, tuple[str, ...]] = field(default_factory=dict)
    told: dict[str, Told] = field(default_factory=dict)
    notes: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    lines: dict[tuple[str, str], int] = field(default_factory=dict)

    def running(self) -> dict[str, int]:
        """Return the pids of tasks that started and did not write that they end."""
        return {task: pids[-1] for task, pids in self.starts.items() if task not in self.ends}


def parse_ledger(text: str) -> Ledger:
    """Parse a ledger."""
    ran = Ledger()
    for number, line in enumerate(text.splitlines()):
        words = line.split(" ")
        ran.lines.setdefault((words[0], words[1]), number)
        match words:
            case ["start", task_id, pid]:
                ran.starts[task_id].append(int(pid))
            case ["end", task_id]:
                ran.ends[task_id] += 1
            case ["heard", executor_id, message]:
                ran.heard[executor_id, int(message)] += 1
            case ["saw", task_id, users]:
                ran.saw[task_id] = tuple(users.rstrip(",").split(","))
            case ["told", task_id, rank, size, hosts, devices, parts]:
                ran.told[task_id] = Told(rank, size, hosts, devices, parts)
            case [kind, task_id, time_s] if kind in NOTES:
                ran.notes[kind, task_id].append(float(time_s))
            case _:
                raise ValueError(f"no line of a ledger: {line!r}")
    return ran


def read_ledger(path: Path) -> Ledger:
    """Read the ledger at `path`; tasks write each line in one piece."""
    return parse_ledger(path.read_text()) if path.exists() else Ledger()
