"""The work that every client of Mesos does in tests: short tasks in turn, and one that is killed.

A task that is lost is launched again under another id. What the client hears goes to a journal, as
lines of JSON. A file `hold` beside the journal keeps it at work.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

VICTIM = "victim"
LOST = ("TASK_LOST", "TASK_FAILED", "TASK_ERROR")
PATIENCE_S = 5.0


class Work:
    """What is left to do.

    Attributes:
        total: short tasks.
        finished: those that have ended well.
    """

    def __init__(self, total: int, journal: Path) -> None:
        self.total, self._journal = total, journal
        self._hold = journal.with_name("hold")
        self.finished: set[str] = set()
        self._launched = 0
        # The one short task that is out, and when it was launched.
        self._out: tuple[str, float] | None = None
        self._victim = ""
        self._victim_done = False

    def note(self, kind: str, **more: Any) -> None:
        """Write a line to the journal."""
        with self._journal.open("a") as journal:
            journal.write(json.dumps({"kind": kind, **more}) + "\n")

    @property
    def is_done(self) -> bool:
        """Whether all short tasks have finished, and the other one was killed."""
        return not self._has_more and self._victim_done

    @property
    def _has_more(self) -> bool:
        return len(self.finished) < self.total or self._hold.exists()

    def next_tasks(self, agent_id: dict[str, str]) -> list[dict[str, Any]]:
        """Return the tasks to launch on an agent now."""
        found = []
        if not self._victim:
            self._launched += 1
            self._victim = f"{VICTIM}-{self._launched}"
            found.append(self._task(self._victim, "sleep 600", agent_id))
        # A task whose launch was lost on the way is given up.
        is_free = self._out is None or time.monotonic() - self._out[1] > PATIENCE_S
        if is_free and self._has_more:
            self._launched += 1
            name = f"short-{self._launched}"
            self._out = (name, time.monotonic())
            found.append(self._task(name, "sleep 0.2", agent_id))
        return found

    def update(self, task_id: str, state: str, message: str = "") -> bool:
        """Note a status, and return whether the task should be killed now."""
        self.note("update", task=task_id, state=state, message=message)
        ended = state in (*LOST, "TASK_FINISHED", "TASK_KILLED")
        if task_id.startswith(VICTIM):
            if ended and state != "TASK_KILLED" and task_id == self._victim:
                self._victim = ""
            self._victim_done |= state == "TASK_KILLED"
            return state == "TASK_RUNNING"
        if state == "TASK_FINISHED":
            self.finished.add(task_id)
        if ended and self._out is not None and self._out[0] == task_id:
            self._out = None
        return False

    @staticmethod
    def _task(task_id: str, line: str, agent_id: dict[str, str]) -> dict[str, Any]:
        return {
            "task_id": {"value": task_id},
            "name": task_id,
            "agent_id": agent_id,
            "command": {"value": line, "shell": True},
            "resources": [
                {"name": "cpus", "type": "SCALAR", "scalar": {"value": 0.1}},
                {"name": "mem", "type": "SCALAR", "scalar": {"value": 32}},
            ],
        }
