"""A machine: processes and disk, which outlive the agent.

Each task's process has a shim that durably records its exit. The shim dies only with the machine or
when a fault kills it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from croupier.agent.core.records import Record, TaskRecord
from croupier.model.devices import Inventory
from croupier.model.ids import FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.task import TaskInfo, TaskState
from croupier.model.volume import Volume
from tests.chaos.virtual.clock import TracedClock

if TYPE_CHECKING:
    from tests.chaos.virtual.judge import Judge

Key = tuple[FrameworkId, TaskId]

# The time that a signalled process takes to end.
DIES_S = 0.02


@dataclass(slots=True)
class Run:
    """One process of a task, under its shim.

    Attributes:
        run: the id of the start; unique on the machine.
        lives: whether the process runs.
        exit_code, signal: its exit; both None if unknown.
        vanished: whether its shim was killed, or the machine restarted.
        rebooted: whether the machine restarted.
        is_watched: whether the present agent has started or adopted it.
        most_s: the longest time that it may take; 0 without a limit.
        started, ended: when, in virtual seconds.
        executor: the process of the executor that runs it; None if it has one of its own.
        outcome: how it ended, as its executor knows.
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
    most_s: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    executor: Run | None = None
    outcome: TaskState | None = None


class Machine:
    """Processes and their shims.

    Attributes:
        inventory: its named devices, which are in its total; None without any.
        boot: the number of starts of the machine.
        runs: by name, until the agent forgets them.
        watcher: receives the ends of watched runs; None without an agent.
        disk: the agent's durable records, in order.
        is_cut: whether a mark beside the disk says that its last records are missing.
        sandboxes: the tasks that were started at least once.
        in_executors: the tasks that were started in executors.
        volumes: the directories of volumes; for each the number of the hold whose tasks wrote into
            it, 0 if there were none.
    """

    def __init__(
        self,
        name: str,
        clock: TracedClock,
        total: Resources,
        judge: Judge,
        inventory: Inventory | None = None,
    ) -> None:
        self.name, self.clock, self.judge, self.inventory = name, clock, judge, inventory
        self.total = total if inventory is None else total + inventory.total
        self.boot = 1
        self.runs: dict[str, Run] = {}
        self.watcher: Callable[[Run], None] | None = None
        self.disk: list[Record] = []
        self.is_cut = False
        self.sandboxes: set[Key] = set()
        self.in_executors: list[Run] = []
        self.volumes: dict[Volume, int] = {}
        self._pids = 1000

    @property
    def boot_id(self) -> str:
        """The boot id, which changes when the machine restarts."""
        return f"{self.name}-boot{self.boot}"

    @property
    def live(self) -> list[Run]:
        return [run for run in self.runs.values() if run.lives]

    def spawn(self, key: Key, run: str, info: TaskInfo) -> Run:
        """Start a task's process; its command is duration, exit code and reaction to SIGTERM."""
        lasts, code, heeds = info.command.shell.split()
        self._pids += 1
        made = Run(key, run, self._pids, info.resources, heeds == "1")
        made.most_s, made.started = info.max_completion_ms / 1000, self.clock.now()
        assert run not in self.runs, f"{run} is started twice"
        self.runs[run] = made
        self.sandboxes.add(key)
        self.judge.on_process(self, made)
        self.clock.after(float(lasts), lambda: self.ends(made, int(code), None))
        return made

    def begin_in_executor(self, run: Run) -> None:
        """Note that an executor begins a task."""
        self.in_executors.append(run)
        self.judge.on_process(self, run)

    def signal(self, run: Run, by_force: bool) -> None:
        if by_force:
            self.clock.after(DIES_S, lambda: self.ends(run, None, 9))
        elif run.heeds:
            self.clock.after(DIES_S, lambda: self.ends(run, None, 15))

    def kill_shim(self, run: Run) -> None:
        """Kill a task's shim, and its process with it."""
        if run.lives:
            run.vanished = True
            self.ends(run, None, None)

    def dismiss(self, run: str) -> None:
        """Forget a run that has ended."""
        known = self.runs.pop(run, None)
        assert known is None or not known.lives, f"{run} lives and is dismissed"

    def unrecorded(self) -> list[Run]:
        """Return the processes without a record, which prove that records are lost."""
        known = {record.run for record in self.disk if isinstance(record, TaskRecord)}
        return [run for run in self.live if run.run not in known]

    def end_orphans(self, known: set[str]) -> None:
        """End the processes of runs without a record."""
        for run in [run for run in self.runs.values() if run.run not in known]:
            self.ends(run, None, 9)
            del self.runs[run.run]

    def unwatch(self) -> None:
        """Note that the agent has ended."""
        self.watcher = None
        for run in self.runs.values():
            run.is_watched = False

    def reboot(self) -> None:
        """Restart the machine; its agent must be down."""
        self.clock.trace(f"{self.name} reboots")
        self.boot += 1
        for run in self.live:
            run.vanished = run.rebooted = True
            self.ends(run, None, None)

    def ends(self, run: Run, code: int | None, signal: int | None) -> None:
        """End a process, or a task in an executor; the tasks in an executor end with it."""
        if not run.lives:
            return
        for each in self.in_executors:
            if each.executor is run:
                self.ends(each, None, None)
        run.lives, run.exit_code, run.signal = False, code, signal
        run.ended = self.clock.now()
        self.clock.trace(f"{self.name} {run.key} ended: code {code}, signal {signal}")
        self.judge.on_process_end(self, run)
        if self.watcher is not None and run.is_watched and run.executor is None:
            self.watcher(run)
