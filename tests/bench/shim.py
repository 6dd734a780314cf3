"""The cost of a shim: starts per second, the time of a start, and memory, beside a bare Popen.

    python -m tests.bench.shim [TASKS]

A supervisor starts TASKS times /bin/true, each in a sandbox of its own, at most 32 at a time: under
the shim, and by a bare Popen with a pidfd, which is as fast as Python can be. The shim is measured
twice: as it is used, starting one task after the other, and with a shim for each task. The bench
prints the rate from the first order to the last end, the time from an order until the start is
known (of Popen: until it returns; of a waiting shim: with the end, if that follows at once), and
the processor time of the supervisor's process and of all processes for each. It also prints the
memory of an idle shim, as the mean of 50: its proportional share (PSS), and the pages that it does
not share.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from croupier.agent.core.events import Started
from croupier.agent.run_ends import RunEvent
from croupier.agent.shim.build import Shim, prepare_shim
from tests.bench.tasks.machine import cpu_s
from tests.harness.supervisor_fixture import PATH, TaskRunner

MOST_AT_ONCE = 32
IDLE = 50


@dataclass
class Measured:
    """The figures of one way to start processes."""

    began: float = field(default_factory=time.perf_counter)
    began_cpu: float = field(default_factory=time.process_time)
    began_all: float = field(default_factory=cpu_s)
    waits: list[float] = field(default_factory=list)

    def line(self, name: str, tasks: int) -> str:
        rate = tasks / (time.perf_counter() - self.began)
        cpu = (time.process_time() - self.began_cpu) / tasks
        others = (cpu_s() - self.began_all) / tasks
        ordered = sorted(wait * 1e3 for wait in self.waits)
        p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
        times = f"start p50 {p50:6.2f} ms   p99 {p99:6.2f} ms   own cpu {cpu * 1e3:5.2f} ms"
        times += f"   all {(cpu + others) * 1e3:5.2f} ms"
        return f"{name:<12} {rate:7.0f}/s   {times}"


class Room:
    """A limit of concurrent processes."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(MOST_AT_ONCE)

    async def take(self) -> None:
        # Always yield to the loop, so that ends are processed.
        await asyncio.sleep(0)
        await self._room.acquire()

    def leave(self) -> None:
        self._room.release()

    async def emptied(self) -> None:
        for _ in range(MOST_AT_ONCE):
            await self._room.acquire()


async def under(shim: Shim, tasks: int, work: Path) -> str:
    name_of_all = "shim waiting" if shim.waits else "shim once"
    runner = TaskRunner(work, shim)
    ordered_at: dict[str, float] = {}
    room = Room()

    def on_report(report: RunEvent) -> None:
        if isinstance(report, Started):
            measured.waits.append(time.perf_counter() - ordered_at[report.key[1]])
        else:
            room.leave()

    runner.supervisor._report = runner.supervisor.ends._report = on_report
    measured = Measured()
    for number in range(tasks):
        await room.take()
        name = f"t{number}{shim.waits}"
        ordered_at[name] = time.perf_counter()
        runner.spawn(name, "/bin/true")
    await room.emptied()
    line = measured.line(name_of_all, tasks)
    runner.supervisor.close()
    return line


async def floor(tasks: int, work: Path) -> str:
    loop = asyncio.get_running_loop()
    room = Room()

    def watch(process: subprocess.Popen[bytes]) -> None:
        def on_end() -> None:
            loop.remove_reader(fd)
            os.close(fd)
            process.wait()
            room.leave()

        fd = os.pidfd_open(process.pid)
        loop.add_reader(fd, on_end)

    measured = Measured()
    for _ in range(tasks):
        await room.take()
        ordered = time.perf_counter()
        watch(subprocess.Popen(["/bin/true"], cwd=work, env=PATH, start_new_session=True))
        measured.waits.append(time.perf_counter() - ordered)
    await room.emptied()
    return measured.line("bare Popen", tasks)


async def memory(shim: Shim, work: Path) -> str:
    runner = TaskRunner(work, shim)
    names = [f"idle-{number}" for number in range(IDLE)]
    for name in names:
        runner.spawn(name, "sleep", "60")
    for name in names:
        await runner.started(name)
    sizes = [_sizes(runner.shim_of(name)) for name in names]
    await runner.supervisor.end(10)
    runner.supervisor.close()
    pss, private = (sum(each) / IDLE for each in zip(*sizes, strict=True))
    return f"shim, idle: PSS {pss:.0f} KB, private {private:.0f} KB"


def _sizes(pid: int) -> tuple[int, int]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {name: int(rest.split()[0]) for name, rest in (line.split(":") for line in lines)}
    return sizes["Pss"], sizes["Private_Clean"] + sizes["Private_Dirty"]


async def main() -> None:
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        print(await floor(tasks, work))
        shim = prepare_shim(work)
        for each in (replace(shim, waits=False), shim):
            print(await under(each, tasks, work))
        print(await memory(shim, work))


if __name__ == "__main__":
    asyncio.run(main())
