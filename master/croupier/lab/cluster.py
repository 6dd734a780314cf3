"""A simulated cluster: a master's core, nodes and frameworks; and its values over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from croupier.master.allocator import Allocator, Rules, policies
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.model.attributes import Attributes
from croupier.model.ids import Role
from croupier.model.resources import Resources
from croupier.sim.agent import NEAR, Link, SimulatedAgent, TaskKey
from croupier.sim.experiment import Simulated
from croupier.sim.framework import Ended, Habits, SimulatedFramework
from croupier.sim.gpus import GpuPlaces
from croupier.sim.kernel import Kernel
from croupier.sim.machine import PAGING, Machine, Paging, Size
from croupier.sim.work import Work

_NOTHING = Size(0, 0)
# Simulated peers send no heartbeats.
PATIENT = Settings(agent_timeout_s=365 * 24 * 3600.0, suspect_beats=float("inf"))


def make_allocator(
    policy: str = "drf", order: str = "random", seed: int = 0, scarce: str = "gpus"
) -> Allocator:
    """Return a fresh allocator of one of `policies.NAMES`.

    `order` is the one of agents: `arrival`, `random`, `pack` or `spread`. Agents with the resource
    `scarce` are withheld from frameworks that do not demand it. Raises InvalidRequest if there is
    no such policy.
    """
    rules = Rules(order=order, seed=seed, scarce=frozenset({scarce}), remembers_misfits=True)
    return Allocator(policies.make(policy, seed), rules)


@dataclass(frozen=True, slots=True)
class Node:
    """A machine, and the resources that its agent advertises."""

    hostname: str
    size: Size
    advertised: Resources
    attributes: Attributes = field(default_factory=dict)


class SimulatedCluster:
    """The parts of one run.

    Attributes:
        rng: the source of all randomness in the run.
        kernel: the virtual time and the master.
        agents: in the order of their nodes.
        size: the resources of all machines together.
        busy: the resources really in use on them.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        allocator: Allocator,
        seed: int = 0,
        settings: Settings = PATIENT,
        paging: Paging = PAGING,
        tick_s: float = 0.0,
        link: Link = NEAR,
    ) -> None:
        """Connect an agent on each node; the allocator is a fresh one.

        Agents notice the end of tasks at multiples of `tick_s`; 0 is at once.
        """
        self.rng = Random(seed)
        self.kernel = Kernel(State("sim", settings, allocator))
        self.run = self.kernel.run
        self.agents: list[SimulatedAgent] = []
        self._present: list[SimulatedFramework] = []
        self._works: dict[TaskKey, Work] = {}
        self._busy: dict[SimulatedAgent, Size] = {}
        self.busy = _NOTHING
        for node in nodes:
            about = (node.hostname, node.advertised, Machine[TaskKey](node.size, paging))
            agent = SimulatedAgent(
                self.kernel, *about, self._works, node.attributes, tick_s, self._on_change, link
            )
            self.agents.append(agent)
            agent.connect()
        sizes = [agent.machine.size for agent in self.agents]
        self.size = Size(sum(s.cpus for s in sizes), sum(s.mem for s in sizes))

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning."""
        return self.kernel.now

    @property
    def simulated(self) -> Simulated:
        """The virtual time and the tasks so far."""
        return Simulated(self.now, sum(agent.launched for agent in self.agents))

    @property
    def waiting(self) -> int:
        """The number of tasks that wait for a launch. O(frameworks that have not left)."""
        self._present = [each for each in self._present if not each.has_left]
        return sum(framework.waiting for framework in self._present)

    def framework(
        self,
        name: str,
        role: str = "*",
        habits: Habits | None = None,
        works: Iterable[Work] = (),
        on_end: Ended | None = None,
        places: GpuPlaces | None = None,
    ) -> SimulatedFramework:
        """Connect a framework with work."""
        made = SimulatedFramework(
            self.kernel, name, Role(role), self._works, habits, on_end, places
        )
        self._present.append(made)
        made.submit(works)
        made.connect()
        return made

    def _on_change(self, agent: SimulatedAgent) -> None:
        busy = agent.machine.busy
        before = self._busy.get(agent, _NOTHING)
        self._busy[agent] = busy
        cpus, mem = self.busy.cpus - before.cpus, self.busy.mem - before.mem
        self.busy = Size(cpus + busy.cpus, mem + busy.mem)


Points = list[tuple[float, float]]


class Series:
    """Curves by name; each is a list of (virtual seconds, value), one per interval."""

    def __init__(self, kernel: Kernel, interval_s: float) -> None:
        """Sample the watched values each `interval_s`."""
        self.curves: dict[str, Points] = {}
        self._kernel = kernel
        self._watched: dict[str, Callable[[], float]] = {}
        kernel.sample(interval_s, self._take)

    def watch(self, name: str, value: Callable[[], float]) -> None:
        """Sample `value` from now on."""
        self._watched[name] = value
        self.curves[name] = []

    def mean(self, name: str, start: float = 0.0, end: float = float("inf")) -> float:
        """Return the mean of the samples at `start` <= time < `end`; 0 without samples."""
        values = [value for at, value in self.curves[name] if start <= at < end]
        return sum(values) / len(values) if values else 0.0

    def _take(self) -> None:
        for name, value in self._watched.items():
            self.curves[name].append((self._kernel.now, value()))
