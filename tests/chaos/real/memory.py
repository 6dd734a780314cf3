"""What a framework of the workload knows: all of it is in its journal."""

from __future__ import annotations

from croupier.sdk import TaskState
from tests.chaos.real.journal import (
    Answered,
    Asked,
    Entry,
    HoldAnswered,
    HoldAsked,
    KillAnswered,
    KillAsked,
    MessageAsked,
    ReleaseAnswered,
    ReleaseAsked,
    Subscribed,
    Update,
    Void,
)
from tests.chaos.real.work import EXECUTOR, VOLUME


class Memory:
    """The state in the journal: rebuilt by reading it, updated by writing it."""

    def __init__(self, entries: list[Entry]) -> None:
        self.framework_id: str | None = None
        self.unsettled: dict[str, None] = {}  # requested, without a verdict
        self.open: dict[str, None] = {}  # launched, without a terminal status
        self.handled: set[tuple[str, int]] = set()
        self.kills: set[str] = set()  # requested, and not refused
        self.killed: set[str] = set()  # answered: from here on the master sees to it
        self.executors: dict[str, str] = {}  # those that run, with their agents
        self.unsettled_holds: dict[str, str] = {}  # requested, without a verdict; their agents
        self.holds: dict[str, None] = {}  # made, and not known to have ended
        self.volumes: dict[str, str] = {}  # those that may be used, with their agents
        self.last = 0
        self.last_hold = 0
        self.last_message = 0
        for entry in entries:
            self.take(entry)

    def take(self, entry: Entry) -> None:
        match entry:
            case Subscribed(framework_id):
                self.framework_id = framework_id
            case Asked(task_ids):
                self.unsettled.update(dict.fromkeys(task_ids))
                self.last = max(self.last, *map(number_of, task_ids))
            case Answered(task_id, error):
                # Updates that arrived before the verdict count.
                if self.unsettled.pop(task_id, task_id) is None and not error:
                    self.open[task_id] = None
            case Void(task_id):
                self.unsettled.pop(task_id, None)
            case KillAsked(task_id):
                self.kills.add(task_id)
            case KillAnswered(task_id):
                self.killed.add(task_id)
            case HoldAsked() | HoldAnswered() | ReleaseAsked() | ReleaseAnswered():
                self._take_hold(entry)
            case MessageAsked():
                self.last_message = entry.number
            case Update() if entry.handled:
                self._told(entry)

    def alive(self) -> list[str]:
        """Return the tasks that may run."""
        return [*self.open, *self.unsettled]

    def _take_hold(self, entry: HoldAsked | HoldAnswered | ReleaseAsked | ReleaseAnswered) -> None:
        match entry:
            case HoldAsked(hold_id, agent_id):
                self.unsettled_holds[hold_id] = agent_id
                self.last_hold = max(self.last_hold, number_of(hold_id))
            case HoldAnswered(hold_id, error):
                agent_id = self.unsettled_holds.pop(hold_id, "")
                if agent_id and not error:
                    self.holds[hold_id] = None
                    if VOLUME in hold_id:
                        self.volumes[hold_id] = agent_id
            case ReleaseAsked(hold_id):
                self.volumes.pop(hold_id, None)
            case ReleaseAnswered(hold_id):
                self.unsettled_holds.pop(hold_id, None)
                self.holds.pop(hold_id, None)

    def _told(self, entry: Update) -> None:
        if entry.sequence == 0:
            return
        self.handled.add((entry.task_id, entry.sequence))
        if TaskState[entry.state].is_terminal:
            self.unsettled.pop(entry.task_id, None)
            self.open.pop(entry.task_id, None)
            self.executors.pop(entry.task_id, None)
        elif entry.state == "RUNNING" and EXECUTOR in entry.task_id:
            self.executors[entry.task_id] = entry.agent_id


def number_of(name: str) -> int:
    """Return the number at the end of the id of a task or a hold."""
    return int(name.rpartition("-")[2])
