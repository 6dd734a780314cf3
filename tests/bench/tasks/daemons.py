"""The cold start of `croupier local`, and the memory of idle daemons."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from croupier.net.transport import free_addresses
from tests.bench.tasks.figures import print_line, refuse
from tests.bench.tasks.machine import QUIET_CPUS, memory_mib, spent_on, wait_for_quiet
from tests.bench.tasks.systems import Client, croupier
from tests.bench.tasks.throughput import Effort
from tests.harness.agent_defaults import LOCAL_FLAGS

SETTLE_S = 3.0
_BIN = Path(sys.executable).parent


def cold_start(effort: Effort) -> None:
    """Start `croupier local --agents 1` until its first task has ended; print a line.

    The client, an SDK framework, has imported the SDK before, and connects once the cluster is
    ready. `with_run_s` is the time until `croupier run`, started then, has ended; `with_compiler_s`
    that of the very first start, which compiles the shim.
    """
    measured: list[tuple[float, list[float]]] = []
    with tempfile.TemporaryDirectory(prefix="bench-cache-") as cache:
        compiling = _start_once(Path(cache))[1]
        for _ in range(effort.rounds):
            wait_for_quiet(effort.patience_s)
            times, passed = spent_on(partial(_start_once, Path(cache)))
            measured.append((passed.foreign_cpus, times))
    loads = [load for load, _ in measured]
    if min(loads) > QUIET_CPUS and not effort.accepts_load:
        refuse("cold-start", "croupier", 1, min(loads))
        return
    ready, first, run = (
        statistics.median(times) for times in zip(*(times for _, times in measured), strict=True)
    )
    print_line(
        "cold-start", "croupier", loads, seconds=first, ready_s=ready, with_run_s=run,
        with_compiler_s=compiling,
        runs=[round(times[1], 3) for _, times in measured],
    )  # fmt: skip


def rss(slots: int) -> None:
    """Print the memory of idle daemons that have run a task."""
    with croupier(slots) as system:
        system.client.run(1)
        time.sleep(SETTLE_S)
        for role, pid in system.pids.items():
            resident, proportional = memory_mib(pid)
            print_line("rss", f"croupier {role}", [], rss_mib=resident, pss_mib=proportional)


def _start_once(cache: Path) -> list[float]:
    """Return the seconds until the cluster was ready, and the ends of a first task two ways."""
    with tempfile.TemporaryDirectory(prefix="bench-local-") as directory:
        listen, http = free_addresses(2)
        # Neither the user's credentials nor settings.
        environment = {n: v for n, v in os.environ.items() if not n.startswith("CROUPIER_")}
        environment |= {"HOME": directory, "XDG_CONFIG_HOME": f"{directory}/config"}
        environment["XDG_CACHE_HOME"] = str(cache)
        words = ["--master", str(listen)]
        client = Client(
            sys.executable, Path(directory, "client.log"), "client_first", str(listen),
            environment=environment,
        )  # fmt: skip
        began = time.perf_counter()
        local = subprocess.Popen(
            [
                str(_BIN / "croupier"), "local", "--agents", "1", "--master-port",
                str(listen.port), "--http-port", str(http.port), *LOCAL_FLAGS,
            ],
            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment, text=True,
        )  # fmt: skip
        try:
            assert local.stdout is not None
            for line in local.stdout:
                if "is ready" in line:
                    break
            ready = time.perf_counter() - began
            client.run(1)
            first = time.perf_counter() - began
            again = time.perf_counter()
            run = [str(_BIN / "croupier"), "run", *words, "--", "/bin/true"]
            subprocess.run(run, env=environment, check=True, capture_output=True)
            return [ready, first, ready + time.perf_counter() - again]
        finally:
            local.terminate()
            local.wait(30)
            client.close()
