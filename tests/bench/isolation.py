"""What isolation costs, and what a task loses beside offenders.

    python -m tests.bench.isolation cost [ROUNDS]
    python -m tests.bench.isolation neighbours

The first runs tasks at each level in turn. `tasks/s` is the rate of `/bin/true`, 32 at a time, with
its ratio to none and what a task takes longer. `start` and `whole` are the times from an order to
the start and to the end of a task that runs alone. Rounds alternate between the levels, so that the
load of the machine hits all of them; no record is written and no message is sent. `own cpu` is the
processor time of the supervisor's process for a task, and `all cpu` that of all processes.

The second needs root. It runs offenders one after the other beside an honest task, on an agent with
default isolation, and prints the honest task's rate as a part of its rate alone, and how each
offender ended.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from croupier.agent.core.events import Exited, Started
from croupier.agent.isolation.assembly import assemble
from croupier.agent.isolation.flags import IsolationFlags
from croupier.agent.isolation.isolator import Launch, Setting
from croupier.agent.run_ends import RunEvent
from croupier.agent.shim.build import prepare_shim
from croupier.agent.unix_user import own_user
from croupier.model.errors import CroupierError
from croupier.model.isolation import Isolation
from croupier.model.resources import Resources
from tests.bench.tasks.machine import cpu_s
from tests.harness.neighbours import OFFENDERS, neighbourhood
from tests.harness.oci_image import make_root
from tests.harness.supervisor_fixture import TaskRunner, key, launch_of

ROUNDS = 6
LEVELS = ("none", "process", "process,cgroup", "process,cgroup,namespaces", "container")
TASKS, CONTAINERS = 200, 20
MOST_AT_ONCE = 32
FIRST_UID = 2_000_000
TOTAL = Resources.parse("cpus:4;mem:4GB")
MEM = Resources.parse("cpus:0.1;mem:32MB")


@dataclass(slots=True)
class Level:
    """A level, the tasks that it starts, and what was measured.

    Attributes:
        rates: tasks per second of each round, 32 at a time.
        starts, whole: from an order to the start and to the end of tasks that run alone, in ms.
        own_cpu, cpu: processor time of this process, and of all processes, for one task, in ms.
        failures: ends other than exit code 0.
    """

    name: str
    runner: TaskRunner
    image: str = ""
    rates: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    own_cpu: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    failures: list[RunEvent] = field(default_factory=list)
    _count: int = 0
    _ends: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    _started_at: float = 0.0

    @property
    def tasks(self) -> int:
        """Return the number of tasks of a round."""
        return CONTAINERS if self.image else TASKS

    def report(self, event: RunEvent) -> None:
        """Take a report of the supervisor; an end frees what the levels hold."""
        if isinstance(event, Started):
            self._started_at = time.perf_counter()
            return
        if not isinstance(event, Exited) or event.exit_code:
            self.failures.append(event)
        self.runner.isolation.forget(event.key[1])
        self._ends.release()

    def order(self) -> None:
        """Start a task."""
        self._count += 1
        name = f"t{self._count}"
        user = own_user(FIRST_UID + self._count) if os.geteuid() == 0 else None
        launch = launch_of(name, "/bin/true", user=user)
        info = replace(launch.info, resources=MEM, isolation=Isolation(image=self.image))
        with self.runner.sandboxes.create(key(name), user, again=True) as sandbox:
            launch = replace(launch, info=info, sandbox=sandbox.path)
            self.runner.supervisor.spawn(self._prepared(launch), sandbox)

    async def together(self) -> None:
        """Measure the rate of many tasks."""
        began, own, cpu = time.perf_counter(), time.process_time(), _spent()
        for number in range(self.tasks):
            # Always yield to the loop, so that ends are processed.
            await asyncio.sleep(0)
            if number >= MOST_AT_ONCE:
                await self._ends.acquire()
            self.order()
        for _ in range(min(MOST_AT_ONCE, self.tasks)):
            await self._ends.acquire()
        self.rates.append(self.tasks / (time.perf_counter() - began))
        self.own_cpu.append((time.process_time() - own) / self.tasks * 1e3)
        self.cpu.append((_spent() - cpu) / self.tasks * 1e3)

    async def alone(self) -> None:
        """Measure tasks that run one after the other."""
        for _ in range(self.tasks // 4):
            began = time.perf_counter()
            self.order()
            await self._ends.acquire()
            self.starts.append((self._started_at - began) * 1e3)
            self.whole.append((time.perf_counter() - began) * 1e3)

    def _prepared(self, launch: Launch) -> Launch:
        return self.runner.isolation.prepare(launch)

    def row(self, beside: Level) -> str:
        """Return a line of the table."""
        rate, other = median(self.rates), median(beside.rates)
        whole = median(self.whole)
        return (
            f"{self.name:<28} {rate:>8.0f} {rate / other:>6.2f} {1e3 / rate - 1e3 / other:>+9.2f}"
            f" {median(self.starts):>9.2f} {whole:>9.2f} {whole - median(beside.whole):>+9.2f}"
            f" {median(self.own_cpu):>9.2f} {median(self.cpu):>9.2f}"
        )


def _spent() -> float:
    """Return the processor time of this process and its descendants, in seconds."""
    return time.process_time() + cpu_s()


@contextmanager
def level(name: str, folder: Path) -> Iterator[Level]:
    """Prepare a level.

    Raises:
        CroupierError: if the machine lacks it.
    """
    folder.chmod(0o755)
    work = folder / name.replace(",", "-")
    work.mkdir()
    roots = folder / f"roots-{work.name}"
    is_image = name == "container"
    image = f"dir:{make_root(roots / 'box')}" if is_image else ""
    flags = IsolationFlags(
        isolation=("process", "cgroup", "container") if is_image else tuple(name.split(",")),
        image_roots=(roots,) if is_image else (),
    )
    shim = prepare_shim(work)
    layers = assemble(Setting(flags, TOTAL, work, shim))
    runner = TaskRunner(work, shim, isolation=layers)
    built = Level(name, runner, image)
    runner.supervisor._report = runner.supervisor.ends._report = built.report
    try:
        yield built
    finally:
        runner.supervisor.close()
        layers.clean(())
        layers.close()


async def cost(folder: Path, rounds: int) -> None:
    """Measure all levels that this machine has, and print the table."""
    with ExitStack() as opened:
        levels = []
        for name in LEVELS:
            try:
                levels.append(opened.enter_context(level(name, folder)))
            except (CroupierError, OSError) as reason:
                print(f"no {name}: {reason}")
        for number in range(rounds):
            for each in levels if number % 2 else reversed(levels):
                await each.together()
                await each.alone()
                if each.failures:
                    raise RuntimeError(f"{each.name}: {each.failures[0]}")
        load = os.getloadavg()[0]
        print(f"{platform.release()}, {os.cpu_count()} cpus, load {load:.1f}, {rounds} rounds")
        print(
            f"{'':<28} {'tasks/s':>8} {'ratio':>6} {'added ms':>9} {'start ms':>9}"
            f" {'whole ms':>9} {'added ms':>9} {'own cpu':>9} {'all cpu':>9}"
        )
        for each in levels:
            print(each.row(levels[0]))


async def neighbours() -> None:
    """Run all offenders, and print a line for each."""
    async with neighbourhood() as beside:
        for offender in OFFENDERS:
            seen = await beside.beside(offender)
            print(f"{seen.name:<24} {seen.rate:5.2f}  {seen.message}")


def main(argv: list[str]) -> int:
    """Run what the words ask for; return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        if argv[:1] == ["cost"]:
            asyncio.run(cost(Path(folder), int(argv[1]) if argv[1:] else ROUNDS))
            return 0
        if argv == ["neighbours"]:
            asyncio.run(neighbours())
            return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
