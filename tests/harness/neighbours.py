"""Offenders beside an honest task, on a real agent: what the honest one loses, and how each ends.

Rule: an offender that no limit stops ends by itself, at 300 processes, 160 MB of memory or 200 MB
on disk, after some seconds. Each runs as a uid of its own, and what could reach others checks that
first.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from croupier.agent.recover import clean_up
from croupier.model.isolation import NO_LIMITS, Limits, parse_limits
from croupier.model.task import Reason, TaskState
from tests.harness.agent_process import AgentProcess
from tests.harness.cluster import processes_with
from tests.harness.eventually import eventually
from tests.harness.limited_tasks import left_groups
from tests.harness.scripted_master import F, ScriptedMaster, program

SECONDS: Final = 0.8
# Other work on the machine may slow the honest task: so often it is tried.
TRIES: Final = 5
HAS: Final = "cpus:2;mem:2GB;disk:2GB"
# Counts for ever, and tells each thousand in a line of 8 bytes.
HONEST: Final = "$| = 1; while (1) { $i++ for 1..1000; syswrite STDOUT, 'counted' . chr(10) }"
_LINE: Final = 8
_OWN = (
    f"use Time::HiRes 'time'; exit 9 if $< < 100000; my $end = time + {SECONDS}; "
    "sub nap { select undef, undef, undef, $_[0] } "
)


@dataclass(frozen=True, slots=True)
class Offender:
    """A task that harms its neighbours, and how it has to end.

    Attributes:
        script: in Perl.
        reason: of the end; None for any.
        told: part of the message.
        is_killed: whether it goes on until it is killed.
    """

    name: str
    script: str
    limits: Limits = NO_LIMITS
    state: TaskState = TaskState.FAILED
    reason: Reason | None = None
    told: str = ""
    is_killed: bool = False


_GROW = "my @x; for (1..160) { push @x, 'a' x 1000000; nap(0.04) } exit 3"
OFFENDERS: Final = (
    Offender(
        "fork bomb",
        "my $n = 0; while (time < $end && $n < 300) { my $p = fork; next unless defined $p; "
        "if (!$p) { sleep 20; exit } $n++ } exit 3",
        parse_limits("pids:50"),
        told="pids limit of 50 was met",
    ),
    Offender(
        "memory hog",
        _GROW,
        reason=Reason.MEMORY_LIMIT,
        told="memory limit of 32 MiB exceeded; peak",
    ),
    Offender(
        "many small memory hogs",
        "for (1..16) { if (!fork) { my $x = ''; for (1..8) { $x .= 'a' x 1000000; nap(0.1) } "
        "sleep 2; exit } } 1 while wait != -1; exit 3",
        reason=Reason.MEMORY_LIMIT,
        told="memory limit of 32 MiB exceeded; peak",
    ),
    Offender(
        "cpu hog", "for (1..7) { last if !fork } 1 while time < $end; 1 while wait != -1; exit 3"
    ),
    Offender(
        "disk filler",
        "for my $n (1..40) { open my $f, '>', qq(fill$n) or exit 4; "
        "for (1..5) { syswrite $f, 'a' x 1000000; nap(0.02) } } exit 3",
        parse_limits("disk:20MB"),
        reason=Reason.DISK_LIMIT,
        told="disk limit of 20.0 MiB exceeded",
    ),
    Offender(
        "descriptor hog",
        "my @f; while (time < $end) { open my $f, '<', '/dev/null' or next; push @f, $f; "
        "last if @f > 1000 } exit(@f < 100 ? 3 : 4)",
        parse_limits("files:100"),
    ),
    Offender(
        "ignores SIGTERM",
        "$SIG{TERM} = 'IGNORE'; nap(0.1) while 1",
        state=TaskState.KILLED,
        is_killed=True,
    ),
    Offender(
        "moves its sandbox",
        "while (time < $end) { rename $ENV{HOME}, qq($ENV{HOME}.old) and "
        "symlink '/', $ENV{HOME} and exit 4; nap(0.01) } exit 3",
    ),
    Offender(
        "signals its shim",
        "while (time < $end) { kill($_, getppid) and exit 4 for qw(STOP TERM KILL); nap(0.01) } "
        "exit 3",
    ),
    Offender("kills all", "while (time < $end) { kill 'KILL', -1; nap(0.01) } exit 3"),
    Offender(
        "writes much",
        "for (1..200) { syswrite STDOUT, 'a' x 1000000; nap(0.005) } exit 3",
        parse_limits("disk:20MB"),
        reason=Reason.DISK_LIMIT,
        told="disk limit",
    ),
)


@dataclass(frozen=True, slots=True)
class Seen:
    """An offender's end, and the honest task's rate beside it as a part of its rate alone."""

    name: str
    rate: float
    message: str


class Neighbourhood:
    """An agent with default isolation, and an honest task on it."""

    def __init__(self, master: ScriptedMaster, agent: AgentProcess) -> None:
        self.master, self.agent = master, agent
        self._count = 0
        self._alone = 0.0

    async def settle(self) -> None:
        """Start the honest task."""
        self.master.launch(_perl("honest", HONEST, "cpus:1;mem:64MB"))
        await self.master.state("honest", TaskState.RUNNING)
        await eventually(self._counted, what="the honest task counts")
        self._alone = await self._rate()

    async def best_beside(self, offender: Offender, least: float) -> Seen:
        """Run an offender until the rate beside it is `least`, a few times at most."""
        for _ in range(TRIES):
            seen = await self.beside(offender)
            if seen.rate >= least:
                break
        return seen

    async def beside(self, offender: Offender) -> Seen:
        """Run an offender to its end; check how it ended, and that nothing of it is left."""
        self._count += 1
        task_id = f"offender{self._count}"
        before = self._alone
        began, counted = time.monotonic(), self._counted()
        task = _perl(task_id, _OWN + offender.script, "cpus:0.1;mem:32MB", limits=offender.limits)
        self.master.launch(task)
        await self.master.state(task_id, TaskState.RUNNING)
        if offender.is_killed:
            await eventually(lambda: time.monotonic() - began > SECONDS)
            self.master.kill(task_id, 100)
        end = await self.master.state(task_id, offender.state)
        beside = (self._counted() - counted) / (time.monotonic() - began)
        after = self._alone = await self._rate()
        self._check(offender, end)
        await self._is_gone(task_id)
        # Other work on the machine changes: compare with the time before and after.
        return Seen(offender.name, beside / ((before + after) / 2), end.message)

    def _check(self, offender: Offender, end: Any) -> None:
        assert offender.reason in (None, Reason(end.reason)), end
        assert offender.told in end.message, end
        if offender.reason is None and not offender.is_killed:
            assert end.exit_code == 3, end
        assert TaskState.RUNNING is self.master.states("honest")[-1]

    async def _is_gone(self, task_id: str) -> None:
        """Wait until no process of an offender is left, also in no group; empty ones are reused."""
        mark = f"CROUPIER_TASK_ID={task_id}\0"
        await eventually(lambda: not processes_with(mark), what=f"no process of {task_id}")
        sandbox = self._sandbox(task_id)
        assert sandbox.is_dir()
        assert not sandbox.is_symlink()

        def runs() -> set[str]:
            found = (run for path in left_groups(self.agent.work_dir) for run in path.iterdir())
            return {run.name for run in found if _has_processes(run)}

        await eventually(lambda: len(runs()) <= 1, what=f"no group of {task_id}")
        await eventually(lambda: sandbox.stat().st_uid == 0, what="the agent owns the sandbox")

    async def _rate(self) -> float:
        began, counted = time.monotonic(), self._counted()
        await eventually(lambda: time.monotonic() - began > SECONDS / 2)
        return (self._counted() - counted) / (time.monotonic() - began)

    def _counted(self) -> int:
        return (self._sandbox("honest") / "stdout").stat().st_size // _LINE

    def _sandbox(self, task_id: str) -> Path:
        return self.agent.work_dir / "sandboxes" / F / task_id


@asynccontextmanager
async def neighbourhood() -> AsyncIterator[Neighbourhood]:
    """Start an agent that is root with the isolation that it has by default."""
    # Tasks with uids of their own cannot enter the directories of pytest.
    folder = Path(tempfile.mkdtemp(prefix="croupier-test-neighbours-"))
    folder.chmod(0o711)
    master = ScriptedMaster()
    await master.start()
    agent = AgentProcess(
        master.address, folder / "work", folder / "log", HAS, "--task-user", "own",
        "--on-stop", "end", isolation="auto",
    )  # fmt: skip
    try:
        agent.start()
        register = (await master.agent()).register
        assert register is not None
        # No offender starts without these.
        assert {"memory", "pids", "cpu-weight", "files", "disk", "users"} <= set(register.isolation)
        neighbours = Neighbourhood(master, agent)
        await neighbours.settle()
        yield neighbours
    finally:
        agent.end()
        await clean_up(folder / "work")
        await master.stop()
        shutil.rmtree(folder)


def _perl(task_id: str, script: str, resources: str, limits: Limits = NO_LIMITS) -> Any:
    return program(task_id, "perl", "-e", script, resources=resources, limits=limits)


def _has_processes(group: Path) -> bool:
    """Return whether a control group has processes; False if it is gone."""
    try:
        return bool((group / "cgroup.procs").read_text())
    except OSError:
        return False
