"""CPU of one framework by the SDK and by the gateway of Mesos: JSON lines on standard output.

    python -m tests.bench.mesos [TASKS=1000] [ROUNDS=3]

A real master and agent; each framework runs /bin/true so many times, four at once, and acknowledges
every update. By the gateway it is one of `pymesos`. `cpu_ms` is that of a task in each process, and
`ratio` is the median of both sums, gateway by SDK. What the tasks themselves use is the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Final

from croupier.net.transport import free_addresses
from tests.harness.cluster import Cluster, real_cluster
from tests.harness.mesos_clients.packages import python_clients

ROOT: Final = Path(__file__).resolve().parents[2]
RESOURCES: Final = "cpus:4;mem:4GB;disk:1GB"
TICKS: Final = os.sysconf("SC_CLK_TCK")
LONGEST_S: Final = 300
WAYS: Final = ("sdk", "gateway")


def cpu_ms(pid: int) -> float:
    """Return the processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / TICKS


def run_client(way: str, address: str, tasks: int) -> float:
    """Run a framework to its end, and return its processor time in milliseconds."""
    path = os.pathsep.join([str(python_clients()), str(ROOT)])
    command = [sys.executable, "-W", "ignore", "-m", "tests.bench.mesos_framework", way, address]
    process = subprocess.Popen(
        [*command, str(tasks)], cwd=ROOT, env={**os.environ, "PYTHONPATH": path}
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return (used.ru_utime + used.ru_stime) * 1000


async def measure(cluster: Cluster, way: str, address: str, tasks: int) -> dict[str, float]:
    """Return the processor time of each process for a task, in milliseconds."""
    pids = {name: process.pid for name, process in cluster.processes.items()}
    before = {name: cpu_ms(pid) for name, pid in pids.items()}
    # A framework without tasks: its start, and that of its libraries.
    idle_ms = await asyncio.to_thread(run_client, way, address, 0)
    between = {name: cpu_ms(pid) for name, pid in pids.items()}
    client_ms = await asyncio.to_thread(run_client, way, address, tasks)
    used = {name: cpu_ms(pid) - 2 * between[name] + before[name] for name, pid in pids.items()}
    used["client"] = client_ms - idle_ms
    return {name: round(ms / tasks, 4) for name, ms in used.items()}


async def main() -> None:
    tasks, rounds = int(os.environ.get("TASKS", "1000")), int(os.environ.get("ROUNDS", "3"))
    (gateway,) = free_addresses(1)
    sums: dict[str, list[float]] = {way: [] for way in WAYS}
    masters: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        flags = ("--mesos-listen", str(gateway))
        async with real_cluster(Path(folder), RESOURCES, flags=flags) as cluster:
            for _ in range(rounds):
                for way in WAYS:
                    address = str(gateway) if way == "gateway" else cluster.master
                    used = await measure(cluster, way, address, tasks)
                    sums[way].append(sum(used.values()))
                    masters[way].append(used["master"])
                    print(json.dumps({"way": way, "cpu_ms": used}), flush=True)
    found = {
        "ratio": round(median(sums["gateway"]) / median(sums["sdk"]), 3),
        "ratio_of_master": round(median(masters["gateway"]) / median(masters["sdk"]), 3),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main())
