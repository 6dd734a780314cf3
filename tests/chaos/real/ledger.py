"""What really ran: each task appended to a ledger that it starts, and that it is about to end."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class Ran:
    """How often each task started and came to its end, and under which pids."""

    starts: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def running(self) -> dict[str, int]:
        """Pids of tasks that started and, as far as they say, have not ended."""
        return {task: pids[-1] for task, pids in self.starts.items() if task not in self.ends}


def parse_ran(text: str) -> Ran:
    """Read a ledger."""
    ran = Ran()
    for line in text.splitlines():
        match line.split(" "):
            case ["start", task_id, pid]:
                ran.starts[task_id].append(int(pid))
            case ["end", task_id]:
                ran.ends[task_id] += 1
            case _:
                raise ValueError(f"no line of a ledger: {line!r}")
    return ran


def read_ran(path: Path) -> Ran:
    """Read the ledger at `path`; tasks write each line in one piece."""
    return parse_ran(path.read_text()) if path.exists() else Ran()
