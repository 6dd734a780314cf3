"""A whole pretend cluster: a master's core, nodes, frameworks, and what they use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from croupier.master.allocator import Allocator
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.model.attributes import Attributes
from croupier.model.ids import AgentId, Role
from croupier.model.resources import Resources
from croupier.sim.agent import PretendAgent, TaskKey
from croupier.sim.framework import Ended, Fits, Habits, PretendFramework
from croupier.sim.kernel import Kernel
from croupier.sim.machine import PAGING, Machine, Size
from croupier.sim.work import Work

# Pretend peers need not say all the time that they are there, unless it is to be tested.
_PATIENT = Settings(agent_timeout_s=365 * 24 * 3600.0)


@dataclass(frozen=True, slots=True)
class Node:
    """A machine, and what its agent advertises of it."""

    hostname: str
    size: Size
    advertised: Resources
    attributes: Attributes = field(default_factory=dict)


class Cluster:
    """Everything of one run.

    Attributes:
        kernel: its time, and its master.
        agents: in the order of their nodes.
        frameworks: in the order in which they came.
        size: what all machines have together.
        busy: what is used of them, none counted beyond what it has, in thousandths.
        launched: how many tasks were started.
        ended: how many of them ended.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        allocator: Allocator,
        seed: int = 0,
        settings: Settings = _PATIENT,
        paging: float = PAGING,
        tick_s: float = 0.0,
        check_every: int = 0,
    ) -> None:
        """Connect an agent on each node.

        Args:
            nodes: the machines.
            allocator: fresh; who is dealt what.
            seed: of all chance in the run.
            settings: the master's.
            paging: see `machine`.
            tick_s: agents notice the end of tasks at multiples of this; 0 is at once.
            check_every: every invariant is asserted each so many steps; 0 is never.
        """
        self.rng = Random(seed)
        self.kernel = Kernel(State("sim", settings, allocator), check_every)
        self.agents: list[PretendAgent] = []
        self.frameworks: list[PretendFramework] = []
        self.launched = 0
        self.ended = 0
        self._works: dict[TaskKey, Work] = {}
        self._busy: dict[str, tuple[int, int]] = {}
        self._busy_cpus = self._busy_mem = 0
        for node in nodes:
            agent = PretendAgent(
                self.kernel,
                node.hostname,
                node.advertised,
                Machine(node.size, paging),
                self._works,
                node.attributes,
                tick_s,
                self._on_change,
            )
            self.agents.append(agent)
            agent.connect()
        sizes = [agent.machine.size for agent in self.agents]
        self.size = Size(sum(s.cpus for s in sizes), sum(s.mem for s in sizes))
        self._by_id = {agent.agent_id: agent for agent in self.agents}

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning."""
        return self.kernel.now

    @property
    def busy(self) -> Size:
        """What is used of the machines, none counted beyond what it has."""
        return Size(self._busy_cpus, self._busy_mem)

    def agent(self, agent_id: AgentId) -> PretendAgent:
        """The agent of this id."""
        return self._by_id[agent_id]

    def framework(
        self,
        name: str,
        role: str = "*",
        habits: Habits | None = None,
        works: Iterable[Work] = (),
        on_end: Ended | None = None,
        fits: Fits | None = None,
    ) -> PretendFramework:
        """Have a framework come, with work."""
        made = PretendFramework(
            self.kernel,
            name,
            Role(role),
            self._works,
            self.rng,
            habits,
            on_end,
            fits,
        )
        self.frameworks.append(made)
        made.submit(works)
        made.connect()
        return made

    def run(self, until: float, progress: Callable[[float], None] | None = None) -> None:
        """Let virtual time pass."""
        self.kernel.run(until, progress)

    def _on_change(self, agent: PretendAgent) -> None:
        used, size = agent.machine.used, agent.machine.size
        cpus, mem = min(used.cpus, size.cpus), min(used.mem, size.mem)
        old_cpus, old_mem = self._busy.get(agent.hostname, (0, 0))
        self._busy[agent.hostname] = (cpus, mem)
        self._busy_cpus += cpus - old_cpus
        self._busy_mem += mem - old_mem
