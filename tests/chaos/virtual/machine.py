"""A machine: what lives on when its agent does not.

Each task's process has a shim that records how it ended, truly and durably, and dies with
the machine only, or when somebody kills it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from croupier.agent.core.records import Record, TaskRecord
from croupier.model.ids import FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.task import TaskInfo
from tests.chaos.virtual.clock import TracedClock

Key = tuple[FrameworkId, TaskId]

# What a process takes to end once it is told to.
DIES_S = 0.02


@dataclass(slots=True)
class Run:
    """One process of a task, under its shim.

    Attributes:
        run: names the start; unique on the machine.
        lives: whether the process runs.
        exit_code, signal: how it ended; both None if nobody knows.
        vanished: its shim was killed, or the machine was restarted.
        rebooted: of the two the latter.
        is_watched: whether the agent of now has started or adopted it.
    """

    key: Key
    run: str
    pid: int
    resources: Resources
    heeds: bool
    lives: bool = True
    exit_code: int | None = None
    signal: int | None = None
    vanished: bool = False
    rebooted: bool = False
    is_watched: bool = True


class Witness(Protocol):
    """Who watches machines."""

    def on_process(self, machine: Machine, run: Run) -> None:
        """A process was started."""

    def on_process_end(self, machine: Machine, run: Run) -> None:
        """A process has ended."""


class Machine:
    """Processes and their shims.

    Attributes:
        boot: counts the starts of the machine.
        runs: by name, until the agent forgets them.
        watcher: told of ends of what is watched, while there is an agent to tell.
        disk: what the agent has made durable, in order.
        is_cut: the mark beside the disk says that records at its end are missing.
        sandboxes: of tasks that were ever started.
    """

    def __init__(self, name: str, clock: TracedClock, total: Resources, witness: Witness) -> None:
        """A machine on which nothing runs."""
        self.name, self.clock, self.total, self.witness = name, clock, total, witness
        self.boot = 1
        self.runs: dict[str, Run] = {}
        self.watcher: Callable[[Run], None] | None = None
        self.disk: list[Record] = []
        self.is_cut = False
        self.sandboxes: set[Key] = set()
        self._pids = 1000

    @property
    def boot_id(self) -> str:
        """Changes when the machine restarts."""
        return f"{self.name}-boot{self.boot}"

    @property
    def live(self) -> list[Run]:
        """The processes that run now."""
        return [run for run in self.runs.values() if run.lives]

    def spawn(self, key: Key, run: str, info: TaskInfo) -> Run:
        """Start a task's process; its command says how long it lasts, its code, and its manners."""
        lasts, code, heeds = info.command.shell.split()
        self._pids += 1
        made = Run(key, run, self._pids, info.resources, heeds == "1")
        assert run not in self.runs, f"{run} is started twice"
        self.runs[run] = made
        self.sandboxes.add(key)
        self.witness.on_process(self, made)
        self.clock.after(float(lasts), lambda: self._ends(made, int(code), None))
        return made

    def signal(self, run: Run, by_force: bool) -> None:
        """Tell a process to end."""
        if by_force:
            self.clock.after(DIES_S, lambda: self._ends(run, None, 9))
        elif run.heeds:
            self.clock.after(DIES_S, lambda: self._ends(run, None, 15))

    def kill_shim(self, run: Run) -> None:
        """Kill a task's shim; what it watched over is swept away with it."""
        if run.lives:
            run.vanished = True
            self._ends(run, None, None)

    def dismiss(self, run: str) -> None:
        """Nobody asks for the run any more."""
        known = self.runs.pop(run, None)
        assert known is None or not known.lives, f"{run} lives and is dismissed"

    def strangers(self) -> list[Run]:
        """The processes that no record names, which proves that records are lost."""
        known = {record.run for record in self.disk if isinstance(record, TaskRecord)}
        return [run for run in self.live if run.run not in known]

    def end_strays(self, known: set[str]) -> None:
        """End the processes of runs that no record tells of."""
        for run in [run for run in self.runs.values() if run.run not in known]:
            self._ends(run, None, 9)
            del self.runs[run.run]

    def unwatch(self) -> None:
        """The agent is no more."""
        self.watcher = None
        for run in self.runs.values():
            run.is_watched = False

    def reboot(self) -> None:
        """Restart the machine; its agent must be down."""
        self.clock.trace(f"{self.name} reboots")
        self.boot += 1
        for run in self.live:
            run.vanished = run.rebooted = True
            self._ends(run, None, None)

    def _ends(self, run: Run, code: int | None, signal: int | None) -> None:
        if not run.lives:
            return
        run.lives, run.exit_code, run.signal = False, code, signal
        self.clock.trace(f"{self.name} {run.key} ended: code {code}, signal {signal}")
        self.witness.on_process_end(self, run)
        if self.watcher is not None and run.is_watched:
            self.watcher(run)
