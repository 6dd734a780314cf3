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
from croupier.sim.experiment import Simulated
from croupier.sim.framework import Ended, Habits, Places, PretendFramework
from croupier.sim.kernel import Kernel
from croupier.sim.machine import PAGING, Machine, Paging, Size
from croupier.sim.work import Work

# Pretend peers need not say all the time that they are there, unless it is to be tested.
_NOTHING = Size(0, 0)
_PATIENT = Settings(agent_timeout_s=365 * 24 * 3600.0, suspect_beats=float("inf"))


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
        size: what all machines have together.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        allocator: Allocator,
        seed: int = 0,
        settings: Settings = _PATIENT,
        paging: Paging = PAGING,
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
        self._present: list[PretendFramework] = []
        self._works: dict[TaskKey, Work] = {}
        self._busy: dict[PretendAgent, Size] = {}
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
    def simulated(self) -> Simulated:
        """How much has happened."""
        return Simulated(self.now, sum(agent.launched for agent in self.agents))

    @property
    def waiting(self) -> int:
        """How many tasks wait to be launched. O(frameworks that have not left)."""
        self._present = [each for each in self._present if not each.has_left]
        return sum(framework.waiting for framework in self._present)

    @property
    def busy(self) -> Size:
        """What is really in use, on all machines together."""
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
        places: Places | None = None,
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
            places,
        )
        self._present.append(made)
        made.submit(works)
        made.connect()
        return made

    def run(
        self,
        until: float,
        progress: Callable[[float], None] | None = None,
        is_over: Callable[[], bool] | None = None,
    ) -> None:
        """Let virtual time pass; see `Kernel.run`."""
        self.kernel.run(until, progress, is_over)

    def _on_change(self, agent: PretendAgent) -> None:
        busy = agent.machine.busy
        before = self._busy.get(agent, _NOTHING)
        self._busy[agent] = busy
        self._busy_cpus += busy.cpus - before.cpus
        self._busy_mem += busy.mem - before.mem
