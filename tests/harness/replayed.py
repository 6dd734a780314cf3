"""Record runs of a master, and replay them."""

from __future__ import annotations

import io
from pathlib import Path
from random import Random

from croupier.ctl.commands.replay import print_found, print_json
from croupier.lab.cluster import Node, SimulatedCluster
from croupier.master.allocator import Allocator, policies
from croupier.master.core.settings import Settings
from croupier.master.eventlog.lines import Head
from croupier.model.resources import Resources
from croupier.sim.framework import Habits, SimulatedFramework
from croupier.sim.machine import Size
from croupier.sim.replay.change import Change
from croupier.sim.replay.result import Replayed, find
from croupier.sim.work import Shape, Work
from tests.harness.recorded import LARGE, make_head, simulation_recorded
from tests.harness.sim_faults import moody_framework

UNIT = Resources.parse("cpus:1;mem:1GB")
SHAPE = Shape(UNIT, Size.of(1, 1))
NODE = Resources.parse("cpus:4;mem:4GB")
PATIENT = Settings(agent_timeout_s=365 * 24 * 3600.0, suspect_beats=1e9)


def quiet(done: float, text: str = "") -> None:
    """Ignore progress."""


def look(path: Path, change: Change | None = None, verify: bool = False) -> Replayed:
    return find(path, change or Change(), quiet, verify=verify)


def nodes(number: int) -> list[Node]:
    return [Node(f"n{i}", Size.of(4, 4), NODE) for i in range(number)]


class Endless:
    """A framework that always has more tasks than fit."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        name: str,
        role: str,
        seconds: float,
        habits: Habits | None = None,
        **moods: float,
    ) -> None:
        self.rng = Random(name)
        self.seconds = seconds
        self.framework: SimulatedFramework = moody_framework(
            cluster,
            name,
            role,
            habits,
            self.works(40),
            lambda _: self.framework.submit(self.works(1)),
            **moods,
        )

    def works(self, number: int) -> list[Work]:
        return [Work(SHAPE, self.rng.uniform(0.5, 1.5) * self.seconds) for _ in range(number)]


def record(path: Path, head: Head | None = None, size: int = LARGE, seconds: float = 60) -> None:
    """Record two roles of weight 1 with endless demand, and a job of eight tasks at half time."""
    head = head or make_head(PATIENT)
    with simulation_recorded(path, head, size):
        allocator = Allocator(policies.make(head.policy), head.rules, head.roles)
        cluster = SimulatedCluster(nodes(5), allocator, settings=head.settings)
        Endless(cluster, "a", "ads", 2.0)
        Endless(cluster, "b", "web", 2.0)
        job = [Work(SHAPE, 5.0) for _ in range(8)]

        def come() -> None:
            cluster.framework("job", "jobs", None, job)

        cluster.kernel.at(seconds / 2, come)
        cluster.run(seconds)


def printed(found: Replayed) -> tuple[str, str]:
    text, document = io.StringIO(), io.StringIO()
    print_found(found, text)
    print_json(found, document)
    return text.getvalue(), document.getvalue()
