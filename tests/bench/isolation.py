"""The cost of levels of isolation: the time of a start, and processor time, beside the shim alone.

    python -m tests.bench.isolation [TASKS]

A supervisor starts TASKS times /bin/true under the compiled shim, one after the other, with each
level that this machine has. The bench prints the time from the order until the program runs, the
time until its end is reported, and the processor time of all processes of a task.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from croupier.agent.core.events import Started
from croupier.agent.isolation.assembly import assemble
from croupier.agent.isolation.flags import IsolationFlags
from croupier.agent.isolation.layers import NO_ISOLATION, Layers
from croupier.agent.shim.build import Shim, prepare_shim
from croupier.agent.supervisor import RunEvent
from croupier.model.errors import CroupierError
from croupier.model.isolation import Isolation
from croupier.model.resources import Resources
from tests.harness.supervisor_fixture import TaskRunner, key, launch_of

TOTAL = Resources.parse("cpus:2;mem:1GB")
NO_NETWORK = Isolation(no_network=True)
WAYS = {
    "shim alone": ((), Isolation()),
    "process": (("process",), Isolation()),
    "process, cgroup": (("process", "cgroup"), Isolation()),
    "namespaces": (("namespaces",), Isolation()),
    "namespaces, no network": (("namespaces",), NO_NETWORK),
    "process, cgroup, namespaces": (("process", "cgroup", "namespaces"), Isolation()),
}


async def measure(layers: Layers, wanted: Isolation, shim: Shim, tasks: int, work: Path) -> str:
    runner = TaskRunner(work, shim, isolation=layers)
    reported: asyncio.Queue[RunEvent] = asyncio.Queue()
    runner.supervisor._report = reported.put_nowait
    starts: list[float] = []
    ends: list[float] = []
    before = _spent()
    for number in range(tasks):
        launch = launch_of(f"t{number}", "/bin/true")
        info = replace(launch.info, isolation=wanted)
        began = time.perf_counter()
        with runner.sandboxes.create(key(launch.run), None, again=True) as sandbox:
            launch = replace(launch, info=info, sandbox=sandbox.path)
            runner.supervisor.spawn(layers.prepare(launch), sandbox)
        event = await reported.get()
        assert isinstance(event, Started), event
        starts.append(time.perf_counter() - began)
        await reported.get()
        ends.append(time.perf_counter() - began)
        layers.forget(launch.run)
        runner.supervisor.forget(launch.run)
    cpu = (_spent() - before) / tasks * 1e3
    runner.supervisor.close()
    return f"start {_middle(starts)}   end {_middle(ends)}   cpu {cpu:5.2f} ms"


def _middle(times: list[float]) -> str:
    ordered = sorted(each * 1e3 for each in times)
    return f"p10 {ordered[len(ordered) // 10]:6.2f} p50 {ordered[len(ordered) // 2]:6.2f} ms"


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def main() -> None:
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        shim = prepare_shim(work)
        for name, (levels, wanted) in WAYS.items():
            layers = NO_ISOLATION
            try:
                if levels:
                    layers = assemble(IsolationFlags(isolation=levels), TOTAL, work, shim=shim)
            except CroupierError as error:
                print(f"{name:<28} not here: {error}")
                continue
            try:
                print(f"{name:<28} {await measure(layers, wanted, shim, tasks, work)}", flush=True)
            finally:
                layers.close()


if __name__ == "__main__":
    asyncio.run(main())
