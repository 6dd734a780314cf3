"""What frameworks cost the allocator while their demand fits nowhere.

    python tests/bench/misfits.py [FRAMEWORKS [AGENTS]]

Each case runs with and without the waiting frameworks, in turn, five times in one process. One JSON
object a line: the case, the medians in milliseconds, and their ratio.

- offer: all agents are free; everything is offered to the one framework whose demand fits.
- end: one task of that framework ends after another, and its resources are offered and used again.
- join: the waiting frameworks connect and declare their demand, with a pass after each.

Their demand is larger than each agent (`same`), the same with a size of its own for each framework
(`sizes`), or asks for an attribute that no agent has (`attribute`). With `part`, half of the agents
could serve it, but are in use. The frameworks share a role, or have one each (`roles`).
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence

from croupier.master.allocator import Allocator, Grant
from croupier.model.attributes import equals
from croupier.model.demand import Demand
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import Resources

TOTAL = Resources.parse("cpus:16;mem:64GB;disk:100GB;ports:[31000-32000]")
UNIT = Resources.parse("cpus:1;mem:1GB")
FIT = FrameworkId("fit")
ROUNDS = 5
ENDS = 2_000
KINDS = ("same", "sizes", "attribute", "part", "roles")

Work = Callable[[], object]


def main() -> int:
    frameworks, agents = [*map(int, sys.argv[1:]), 1_000, 1_000][:2]
    for case, make in (("offer", offer), ("end", end)):
        for kind in KINDS:
            waiting, alone = [], []
            for _ in range(ROUNDS):
                waiting.append(timed(make(kind, frameworks, agents)))
                alone.append(timed(make(kind, 0, agents)))
            report(case, kind, frameworks, agents, waiting, alone)
    for kind in KINDS:
        joins = [timed(join(kind, frameworks, agents)) for _ in range(ROUNDS)]
        report("join", kind, frameworks, agents, joins, [])
    return 0


def report(
    case: str,
    kind: str,
    frameworks: int,
    agents: int,
    waiting: Sequence[float],
    alone: Sequence[float],
) -> None:
    line: dict[str, object] = {
        "case": case,
        "kind": kind,
        "frameworks": frameworks,
        "agents": agents,
        "waiting_ms": round(statistics.median(waiting) * 1e3, 2),
    }
    if alone:
        line["alone_ms"] = round(statistics.median(alone) * 1e3, 2)
        line["ratio"] = round(statistics.median(waiting) / statistics.median(alone), 2)
    print(json.dumps(line), flush=True)


def timed(work: Work) -> float:
    gc.collect()
    began = time.process_time()
    work()
    return time.process_time() - began


def cluster(kind: str, agents: int) -> Allocator:
    """Return agents; with `part`, every second one is large, and half in use."""
    allocator = Allocator()
    allocator.add_framework(FIT, (Role("fit"),))
    for number in range(agents):
        is_large = kind == "part" and number % 2
        total = Resources.parse("cpus:2000;mem:64GB") if is_large else TOTAL
        allocator.add_agent(AgentId(f"a{number}"), total, f"host{number}", {"zone": "z1"})
        if is_large:
            allocator.charges.charge(FIT, Role("fit"), AgentId(f"a{number}"), total)
    return allocator


def demand(kind: str, number: int) -> Demand:
    if kind == "attribute":
        return Demand(UNIT, 1, (equals("zone", "elsewhere"),))
    size = 100 + number if kind == "sizes" else 100
    return Demand(Resources({"cpus": size * 1000}), 1)


def add_waiting(allocator: Allocator, kind: str, number: int) -> None:
    framework_id = FrameworkId(f"f{number}")
    role = Role(f"r{number}" if kind == "roles" else "*")
    allocator.add_framework(framework_id, (role,))
    allocator.set_demand(framework_id, (demand(kind, number),))
    allocator.connect(framework_id, True)


def deal(allocator: Allocator) -> list[Grant]:
    grants: list[Grant] = []
    while allocator.has_dirty_agents:
        grants += allocator.run(0.0)
    return grants


def offer(kind: str, frameworks: int, agents: int) -> Work:
    allocator = cluster(kind, agents)
    for number in range(frameworks):
        add_waiting(allocator, kind, number)
    allocator.set_demand(FIT, (Demand(UNIT),))
    allocator.connect(FIT, True)
    return lambda: deal(allocator)


def end(kind: str, frameworks: int, agents: int) -> Work:
    allocator = cluster(kind, agents)
    for number in range(frameworks):
        add_waiting(allocator, kind, number)
    allocator.set_demand(FIT, (Demand(UNIT),))
    allocator.connect(FIT, True)
    running = []
    for grant in deal(allocator):
        running += launch(allocator, grant)
    deal(allocator)

    def churn() -> None:
        for number in range(ENDS):
            allocator.charges.release(*running[number % len(running)], UNIT)
            for grant in deal(allocator):
                launch(allocator, grant)

    return churn


def launch(allocator: Allocator, grant: Grant) -> list[tuple[FrameworkId, Role, AgentId]]:
    """Use every unit of a grant."""
    tasks = [unit for unit, number in grant.units for _ in range(number)]
    left = grant.resources
    for task in tasks:
        allocator.charges.launch(*grant.place, task)
        left = left - task
    allocator.settle_offers(*grant.place, grant.units, tasks, left)
    return [grant.place] * len(tasks)


def join(kind: str, frameworks: int, agents: int) -> Work:
    allocator = cluster(kind, agents)

    def come() -> None:
        for number in range(frameworks):
            add_waiting(allocator, kind, number)
            deal(allocator)

    return come


if __name__ == "__main__":
    sys.exit(main())
