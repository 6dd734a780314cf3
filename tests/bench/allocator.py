"""What dealing costs: a full deal, a hundred agents freed, and nothing at all.

    python tests/bench/allocator.py [AGENTS FRAMEWORKS]

Beside each figure stands the time of a bare heapq loop of as many steps, the floor for
"who is next" in this interpreter on this machine.
"""

from __future__ import annotations

import heapq
import statistics
import sys
import time
from collections.abc import Callable

from croupier.master.allocator import Allocator, Grant
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import Resources

TOTAL = Resources.parse("cpus:24;mem:4096;disk:4096;ports:[31000-32000]")
FREED = Resources.parse("cpus:1;mem:128MB")


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def heap_loop(clients: int, steps: int) -> None:
    heap = [(0.0, client) for client in range(clients)]
    for _ in range(steps):
        share, client = heap[0]
        heapq.heapreplace(heap, (share + 0.001, client))


def make(agents: int, frameworks: int) -> Allocator:
    allocator = Allocator()
    for number in range(agents):
        allocator.add_agent(AgentId(f"a{number}"), TOTAL)
    for number in range(frameworks):
        allocator.add_framework(FrameworkId(f"f{number}"), Role(f"r{number}"))
        allocator.connect(FrameworkId(f"f{number}"), True)
    return allocator


def one_round(agents: int, frameworks: int) -> tuple[float, float, float]:
    """Seconds of a full deal, of 100 freed agents, and of a quiet cluster."""
    allocator = make(agents, frameworks)
    grants: list[Grant] = []
    full = timed(lambda: grants.extend(allocator.run(0.0, 10**9)))
    for grant in grants[:100]:
        allocator.release(grant.framework_id, grant.agent_id, FREED)
    freed = timed(lambda: allocator.run(0.0, 10**9))
    return full, freed, timed(lambda: allocator.run(0.0, 10**9))


def row(name: str, seconds: tuple[float, ...], floor: float) -> str:
    median = statistics.median(seconds)
    return f"{name:<36} {median * 1e3:9.2f} ms   {median / floor:6.1f} x the heap loop"


def main() -> int:
    agents, frameworks = (int(word) for word in sys.argv[1:3] or ("10000", "1000"))
    full, freed, idle = zip(*(one_round(agents, frameworks) for _ in range(5)), strict=True)
    floor = timed(lambda: heap_loop(frameworks, agents))
    print(f"{agents} agents, {frameworks} frameworks, each in a role of its own")
    print(row("everything is dealt", full, floor))
    print(row("100 agents freed something", freed, floor))
    print(row("nothing has changed", idle, floor))
    return 0


if __name__ == "__main__":
    sys.exit(main())
