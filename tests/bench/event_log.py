"""Cost of the event log: events per second of the master's core, with and without it.

    python -m tests.bench.event_log [SECONDS]

A simulated cluster of 200 agents and 20 frameworks produces the events of so many seconds. A
fresh core then processes them in batches of 50, as under load: alone, and with a recorder that
writes to a file. Figures are medians of five. The first line is a heapq loop, as a reference.
"""

from __future__ import annotations

import heapq
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from croupier.lab.cluster import Node, SimulatedCluster
from croupier.master.allocator import Allocator
from croupier.master.core.effects import Effect
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.master.core.step import Event, step
from croupier.master.eventlog.recorder import FileRecorder
from croupier.model.resources import Resources
from croupier.sim import kernel as kernel_module
from croupier.sim.machine import Size
from croupier.sim.work import Shape, Work
from tests.harness.recorded import make_head, make_recorder, state_of

BATCH = 50
REPEATS = 5
PATIENT = Settings(agent_timeout_s=365 * 24 * 3600.0, suspect_beats=1e9)


def events_of(seconds: float) -> list[tuple[Event, float]]:
    """Return the events of a master in so many seconds."""
    events: list[tuple[Event, float]] = []

    def noted(state: State, event: Event, now: float) -> list[Effect]:
        events.append((event, now))
        return step(state, event, now)

    setattr(kernel_module, "step", noted)  # noqa: B010 - not one of its public names
    shape = Shape(Resources.parse("cpus:1;mem:1GB"), Size.of(1, 1))
    total = Resources.parse("cpus:8;mem:16GB")
    nodes = [Node(f"n{number}", Size.of(8, 16), total) for number in range(200)]
    cluster = SimulatedCluster(nodes, Allocator(), settings=PATIENT)
    for number in range(20):
        works = [
            Work(shape, 1 + (number * 7 + each) % 13 / 4) for each in range(400 * int(seconds))
        ]
        cluster.framework(f"f{number}", f"r{number}", works=works)
    cluster.run(seconds)
    setattr(kernel_module, "step", step)  # noqa: B010
    return events


def decide(events: list[tuple[Event, float]], recorder: FileRecorder | None = None) -> float:
    """Run a fresh core on all events; return the seconds."""
    state = state_of(make_head(PATIENT))
    began = time.perf_counter()
    for start in range(0, len(events), BATCH):
        for event, now in events[start : start + BATCH]:
            effects = step(state, event, now)
            if recorder is not None:
                recorder.decided(event, now, effects)
        if recorder is not None:
            recorder.flush(state)
    return time.perf_counter() - began


def reference() -> float:
    """Run a loop on a heap, as a measure of the machine; return seconds per million."""
    heap = list(range(1000))
    began = time.perf_counter()
    for number in range(1_000_000):
        heapq.heapreplace(heap, number)
    return time.perf_counter() - began


def main() -> int:
    events = events_of(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0)
    print(f"reference: a million steps on a heap   {reference():.3f} s")
    alone, logged, size = [], [], 0
    for _ in range(REPEATS):
        alone.append(decide(events))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "log"
            recorder: FileRecorder = make_recorder(path, make_head(PATIENT))
            logged.append(decide(events, recorder))
            recorder.close()
            assert not recorder.dropped
            size = path.stat().st_size
    for name, times in (("without an event log", alone), ("with one", logged)):
        print(f"{name:<24} {len(events) / median(times):8.0f} events/s")
    cost = (median(logged) - median(alone)) / len(events) * 1e6
    print(f"{'cost of an event':<24} {cost:8.1f} us, {size / len(events):.0f} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
