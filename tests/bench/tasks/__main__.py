"""Short tasks, beside `xargs -P` in the same run: JSON lines on standard output.

    make bench-tasks [SCENARIOS=offers,latency] [SLOTS=2,64] [TASKS=N] [ROUNDS=5] [PEERS=1]

A real master (SQLite, durable before it answers), agent and framework on loopback, each a process;
each task is a real /bin/true under its shim. Scenarios:

- offers: the framework declares its demand and accepts what it is offered.
- submit: it hands all tasks to the master.
- latency: one task at a time on an idle cluster, from the call to the known end; with the ways of
  both scenarios above.
- cold-start: from the start of `croupier local --agents 1` until a first task has ended.
- rss: memory of idle daemons after a first task.

Rounds of xargs and of the system alternate, and the medians of both give `ratio`. All CPU counts:
of daemons, client, shims and tasks, also of those that have ended, as in `xargs_cpu_ms`;
`own_cpu_ms` is that of the daemons and the client alone, by role.

`foreign_cpus` is the CPU that others used in the worst round that counts. A round with more than
0.25 is repeated, 3 times at most. If no round is quiet, the line has `refused` and no figures;
LOADED=1 prints them, with `loaded`. FIRST=1, as root, takes the CPUs before other sessions do.

PEERS=1 also measures Ray and HyperQueue, from $PEERS_DIR/venv/ray and $PEERS_DIR/venv/hq (virtual
environments with `pip install ray` and `pip install hyperqueue`; PEERS_DIR is $TMPDIR/peers if not
given). ISOLATION=none is that of the agent's tasks: the others isolate nothing. Only one such bench
runs at a time on a machine; another waits.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from croupier.sdk import Framework
from tests.bench.tasks.daemons import cold_start, rss
from tests.bench.tasks.machine import become_reaper, take_precedence
from tests.bench.tasks.systems import croupier, hyperqueue, missing_peer, ray
from tests.bench.tasks.throughput import Effort, Start, latency, throughput

ALL = "submit,offers,latency,cold-start,rss"
WAYS = ("submit", "offers")


def main() -> None:
    scenarios = os.environ.get("SCENARIOS", ALL).split(",")
    slots = [int(each) for each in os.environ.get("SLOTS", "2,64").split(",")]
    rounds, is_loaded = int(os.environ.get("ROUNDS", "5")), os.environ.get("LOADED") == "1"
    become_reaper()
    if os.environ.get("FIRST") == "1":
        take_precedence()
    with _alone():
        for each in slots:
            effort = Effort(int(os.environ.get("TASKS", 1000 * min(each, 2))), rounds, is_loaded)
            for way in _ways(scenarios):
                throughput(way, "croupier", partial(croupier, each, way), each, effort)
            if {*WAYS} & {*scenarios}:
                _with_peers(partial(throughput, "submit"), each, effort)
        if "latency" in scenarios:
            for way in _ways(WAYS):
                latency(f"croupier {way}", partial(croupier, slots[0], way), slots[0], effort)
            _with_peers(latency, slots[0], effort)
        if "cold-start" in scenarios:
            cold_start(effort)
        if "rss" in scenarios:
            rss(slots[0])


def _ways(scenarios: list[str] | tuple[str, ...]) -> Iterator[str]:
    for way in WAYS:
        if way == "submit" and not hasattr(Framework, "submit"):
            _note(way, "croupier", "this build cannot submit tasks")
        elif way in scenarios:
            yield way


def _with_peers(
    measure: Callable[[str, Start, int, Effort], None], slots: int, effort: Effort
) -> None:
    if os.environ.get("PEERS") != "1":
        return
    for name, start in (("ray", ray), ("hq", hyperqueue)):
        why = missing_peer(name)
        if why:
            _note("peers", name, why)
        else:
            measure(name, partial(start, slots), slots, effort)


def _note(scenario: str, system: str, why: str) -> None:
    print(json.dumps({"scenario": scenario, "system": system, "missing": why}), flush=True)


@contextmanager
def _alone() -> Iterator[None]:
    """Wait until no other bench of tasks runs on the machine."""
    with Path(tempfile.gettempdir(), "croupier-bench.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another bench runs; waiting for its end", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    main()
