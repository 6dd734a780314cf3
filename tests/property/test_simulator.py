"""Random clusters with faults in virtual time: nothing is lost, nothing is counted twice."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from croupier.lab.cluster import Node, SimulatedCluster, make_allocator
from croupier.master.core.settings import Settings
from croupier.model.resources import Resources
from croupier.sim.framework import Habits, SimulatedFramework
from croupier.sim.machine import Size
from croupier.sim.work import Shape, Work
from tests.harness.effort import portion
from tests.harness.sim_faults import checked_steps, crash, disconnect, moody_framework

POLICIES = ("drf", "yarn-drf", "fifo", "asset", "single-resource", "slots", "random")
ORDERS = ("arrival", "random", "pack", "spread")


def make_cluster(rng: Random, seed: int) -> SimulatedCluster:
    nodes = []
    for i in range(rng.randint(1, 6)):
        size = Size.of(rng.randint(2, 8), rng.randint(2, 16))
        nodes.append(Node(f"n{i}", size, Resources({"cpus": size.cpus, "mem": size.mem})))
    allocator = make_allocator(rng.choice(POLICIES), rng.choice(ORDERS), seed)
    return SimulatedCluster(
        nodes, allocator, seed, Settings(agent_timeout_s=1e9, suspect_beats=1e9)
    )


def make_framework(
    cluster: SimulatedCluster, rng: Random, name: str, ended: list[Work]
) -> SimulatedFramework:
    shapes = [
        Shape(Resources({"cpus": use.cpus, "mem": use.mem}), use)
        for use in (Size.of(rng.randint(1, 2), rng.randint(1, 2)) for _ in range(2))
    ]
    declares = rng.random() < 0.7
    think_s, declines = rng.choice((0.0, 0.3)), rng.choice((0.0, 0.3))
    habits = Habits(declares, rng.choice((None, 1, 3)), rng.choice((None, 0.5, 20.0)))
    if shapes[0].ask == shapes[1].ask:
        shapes.pop()
    works = [
        Work(rng.choice(shapes), rng.uniform(0.5, 20.0), rng.choice((1, 2)) * (rng.random() < 0.1))
        for _ in range(rng.randint(0, 40))
    ]
    role = rng.choice(("a", "a/x", "a/y", "b"))
    return moody_framework(
        cluster, name, role, habits, works, ended.append, think_s=think_s, declines=declines
    )


@pytest.mark.parametrize("seed", range(portion(60)))
def test_all_work_is_done_despite_faults(seed: int) -> None:
    rng = Random(seed)
    cluster = make_cluster(rng, seed)
    ended: list[Work] = []
    frameworks = [make_framework(cluster, rng, f"f{i}", ended) for i in range(rng.randint(1, 5))]
    of_all = sum(framework.waiting + framework.running for framework in frameworks)
    for agent in cluster.agents:
        if rng.random() < 0.5:
            down_s, tasks_survive = rng.uniform(0, 30), rng.random() < 0.5
            cluster.kernel.at(rng.uniform(0, 40), partial(crash, agent, down_s, tasks_survive))
    away = rng.choice(frameworks)
    cluster.kernel.at(rng.uniform(0, 20), partial(disconnect, away))
    cluster.kernel.at(rng.uniform(20, 40), away.connect)
    with checked_steps():
        cluster.run(5000.0)
    assert len(ended) == len(set(ended))
    lost = of_all - len(ended)
    assert lost == 0, f"{lost} of {of_all} tasks were not done"
    assert cluster.busy == Size(0, 0)
    assert all(not any(framework.held.values()) for framework in frameworks)
    for known in cluster.kernel.state.agents.values():
        offered = [offer.resources for offer in known.offers.values()]
        free = cluster.kernel.state.allocator.queries.free(known.agent_id)
        assert sum((each["cpus"] for each in offered), free["cpus"]) == known.total["cpus"]
