"""Benchmark of the allocator, beside a bare heapq loop of as many decisions.

    make bench-allocator

Each scenario runs five times in a process of its own. A table goes to standard error, one
JSON object a line to standard output: scenario, agents, frameworks, seconds (the median),
rss_mb (the process's peak), decisions, and reference_seconds: a heapq loop over as many
clients and steps, the floor for one choice in this interpreter on this machine.

Agents and frameworks are those of Apache Mesos' own allocator benchmark: cpus:24, mem:4096,
disk:4096 and a thousand ports each; one framework for each role, no declared demand.

- full: every agent is offered; full-one-role: the same with all frameworks in one role.
- add-frameworks: all agents are free; frameworks join one by one, with a pass after each.
- freed-100: all resources are in use; a hundred agents free a part, which is offered.
- declined: all offers were declined for an hour; the next cycle. Also bytes for each filter.
- suppressed: every agent is offered, with 99 of 100 frameworks suppressed.
"""

from __future__ import annotations

import gc
import heapq
import json
import resource
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable

from croupier.master.allocator import Allocator, Grant
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import Resources

TOTAL = Resources.parse("cpus:24;mem:4096;disk:4096;ports:[31000-32000]")
FREED = Resources.parse("cpus:1;mem:128MB")
ROUNDS = 5

CASES = (
    ("full", 1_000, 1_000),
    ("full", 10_000, 200),
    ("full", 10_000, 1_000),
    ("full", 100_000, 1_000),
    ("full-one-role", 10_000, 1_000),
    ("full-one-role", 10_000, 6_000),
    ("add-frameworks", 10_000, 1_000),
    ("freed-100", 10_000, 200),
    ("freed-100", 10_000, 1_000),
    ("declined", 10_000, 200),
    ("suppressed", 5_000, 1_000),
    # The cost of a decision by the number of frameworks.
    ("full", 20_000, 100),
    ("full", 20_000, 1_000),
    ("full", 20_000, 10_000),
    ("full", 20_000, 100_000),
)

Measured = tuple[float, int]


def main() -> int:
    if len(sys.argv) == 4:
        scenario, agents, frameworks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
        print(json.dumps(measure(scenario, agents, frameworks)))
        return 0
    head = ("scenario", "agents", "frameworks", "ms", "decisions", "us each", "x heapq", "MB")
    print("{:<15}{:>9}{:>12}{:>10}{:>11}{:>10}{:>9}{:>7}".format(*head), file=sys.stderr)
    for case in CASES:
        words = [sys.executable, __file__, *map(str, case)]
        result = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
        print(result, end="", flush=True)
        print(row(json.loads(result)), file=sys.stderr)
    return 0


def row(result: dict[str, float]) -> str:
    seconds, decisions = result["seconds"], result["decisions"]
    each = f"{seconds / decisions * 1e6:.1f}" if decisions else "-"
    times = f"{seconds / result['reference_seconds']:.1f}" if decisions else "-"
    text = (
        f"{result['scenario']:<15}{result['agents']:>9}{result['frameworks']:>12}"
        f"{seconds * 1e3:>10.2f}{decisions:>11}{each:>10}{times:>9}{result['rss_mb']:>7.0f}"
    )
    if "bytes_per_filter" in result:
        text += (
            f"   {result['bytes_per_filter']:.0f} bytes for each of {result['filters']:,} filters"
        )
    return text


def measure(scenario: str, agents: int, frameworks: int) -> dict[str, object]:
    """Run one scenario five times."""
    result: dict[str, object] = {"scenario": scenario, "agents": agents, "frameworks": frameworks}
    if scenario == "declined":
        runs, more = declined(agents, frameworks)
        result |= more
    else:
        runs = []
        for _ in range(ROUNDS):
            gc.collect()
            runs.append(SCENARIOS[scenario](agents, frameworks))
    decisions = runs[0][1]
    result["seconds"] = statistics.median(seconds for seconds, _ in runs)
    result["rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    result["decisions"] = decisions
    floors = [timed(lambda: heap_loop(frameworks, max(decisions, 1))) for _ in range(ROUNDS)]
    result["reference_seconds"] = statistics.median(floors)
    return result


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def heap_loop(clients: int, steps: int) -> None:
    heap = [(0.0, client) for client in range(clients)]
    for _ in range(steps):
        share, client = heap[0]
        heapq.heapreplace(heap, (share + 0.001, client))


def make(agents: int, frameworks: int, *, one_role: bool = False) -> Allocator:
    allocator = Allocator()
    for number in range(agents):
        allocator.add_agent(AgentId(f"a{number}"), TOTAL)
    add_frameworks(allocator, frameworks, one_role=one_role)
    return allocator


def add_frameworks(allocator: Allocator, frameworks: int, *, one_role: bool = False) -> None:
    for number in range(frameworks):
        role = Role("*" if one_role else f"r{number}")
        allocator.add_framework(FrameworkId(f"f{number}"), (role,))
        allocator.connect(FrameworkId(f"f{number}"), True)


def deal(allocator: Allocator) -> list[Grant]:
    grants: list[Grant] = []
    while allocator.has_dirty_agents:
        grants += allocator.run(0.0, 10**9)
    return grants


def full(agents: int, frameworks: int) -> Measured:
    return dealt(make(agents, frameworks))


def full_one_role(agents: int, frameworks: int) -> Measured:
    return dealt(make(agents, frameworks, one_role=True))


def dealt(allocator: Allocator) -> Measured:
    grants: list[Grant] = []
    seconds = timed(lambda: grants.extend(deal(allocator)))
    return seconds, len(grants)


def add(agents: int, frameworks: int) -> Measured:
    """Add frameworks to a cluster with 1 % of its resources free."""
    allocator = make(agents, 1)
    grants = deal(allocator)
    for grant in grants[: agents // 100]:
        settle(allocator, grant, None)

    def come() -> None:
        for number in range(1, frameworks + 1):
            allocator.add_framework(FrameworkId(f"f{number}"), (Role(f"r{number}"),))
            allocator.connect(FrameworkId(f"f{number}"), True)
            allocator.run(0.0)
        grants.extend(deal(allocator))

    return timed(come), frameworks


def freed(agents: int, frameworks: int) -> Measured:
    allocator = make(agents, frameworks)
    for grant in deal(allocator)[:100]:
        place = (grant.framework_id, grant.role, grant.agent_id)
        allocator.charges.launch(*place, FREED)
        allocator.charges.release(*place, FREED)
    return dealt(allocator)


def suppressed(agents: int, frameworks: int) -> Measured:
    allocator = make(agents, frameworks)
    for number in range(frameworks * 99 // 100):
        allocator.suppress(FrameworkId(f"f{number}"))
    return dealt(allocator)


def settle(allocator: Allocator, grant: Grant, until: float | None) -> None:
    allocator.settle_offers(*grant.place, grant.units, unused=grant.resources, refused_until=until)


def declined(agents: int, frameworks: int) -> tuple[list[Measured], dict[str, float]]:
    """Decline every offer, then measure passes without a change."""
    allocator = make(agents, frameworks)
    decline_all(allocator)
    runs = [dealt(allocator) for _ in range(ROUNDS)]
    filters = allocator.queries.filter_count()
    # Memory is measured on a smaller cluster: tracing would slow this one down.
    allocator = make(agents // 20, frameworks)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    decline_all(allocator)
    gc.collect()
    size = (tracemalloc.get_traced_memory()[0] - before) / allocator.queries.filter_count()
    tracemalloc.stop()
    return runs, {"filters": filters, "bytes_per_filter": size}


def decline_all(allocator: Allocator) -> None:
    while grants := deal(allocator):
        for grant in grants:
            settle(allocator, grant, 3600.0)


SCENARIOS: dict[str, Callable[[int, int], Measured]] = {
    "full": full,
    "full-one-role": full_one_role,
    "add-frameworks": add,
    "freed-100": freed,
    "suppressed": suppressed,
}


if __name__ == "__main__":
    sys.exit(main())
