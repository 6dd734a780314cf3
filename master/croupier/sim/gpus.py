"""GPUs of nodes, one by one: the master only knows their sum.

A part of a GPU must fit on one GPU, and a whole GPU must be entirely free. So a node can have
enough in sum and still no room: that is fragmentation. A node places a part on the fullest GPU
with room (best fit), and whole GPUs on the first free ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from croupier.model.ids import AgentId
from croupier.sim.machine import Size
from croupier.sim.work import Work

WHOLE = 1000


@dataclass(frozen=True, slots=True)
class GpuNeed:
    """The need of a task: `milli` thousandths of each of `gpus` GPUs, and CPUs and memory."""

    gpus: int
    milli: int
    use: Size


class GpuNode:
    """A node's GPUs: thousandths `free` of each, and the CPUs and the memory that are `left`."""

    __slots__ = ("free", "left", "useless")

    def __init__(self, gpus: int, size: Size) -> None:
        self.free = [WHOLE] * gpus
        self.left = size
        self.useless = 0.0

    def find(self, need: GpuNeed) -> list[int] | None:
        """Return the GPUs to take, by their free parts alone; None without room."""
        if not need.gpus:
            return []
        fits = [i for i, milli in enumerate(self.free) if milli >= need.milli]
        if need.milli < WHOLE:
            return [min(fits, key=lambda i: self.free[i])] if fits else None
        return fits[: need.gpus] if len(fits) >= need.gpus else None

    def change(self, need: GpuNeed, gpus: Sequence[int], sign: int) -> None:
        """Take (-1) or free (1) the GPUs of one task."""
        for i in gpus:
            self.free[i] += sign * need.milli
        self.left = Size(self.left.cpus + sign * need.use.cpus, self.left.mem + sign * need.use.mem)

    def useless_for(self, need: GpuNeed) -> int:
        """Return the thousandths of free GPUs that such a task cannot use."""
        free = sum(self.free)
        if need.use.cpus > self.left.cpus or need.use.mem > self.left.mem:
            return free
        if self.find(need) is None:
            return free
        return sum(milli for milli in self.free if milli < need.milli)


class GpuPlaces:
    """All nodes' GPUs, and how fragmented they are. The master does not know these limits.

    Attributes:
        taken: thousandths of GPUs that tasks have.
        useless: fragmentation, in thousandths of GPUs: the mean free amount that a task cannot
            use, over the kinds of GPU tasks weighted by frequency (Weng et al., USENIX ATC 2023).
    """

    def __init__(self, nodes: dict[AgentId, GpuNode], needs: Iterable[GpuNeed]) -> None:
        """`needs` are those of all tasks that may come."""
        self._nodes = nodes
        counts = Counter(need for need in needs if need.gpus)
        of_all = sum(counts.values())
        self._common = [(need, number / of_all) for need, number in counts.items()]
        self._needs: dict[Work, GpuNeed] = {}
        self._where: dict[Work, tuple[GpuNode, list[int]]] = {}
        self.taken = 0
        self.useless = 0.0
        for node in nodes.values():
            self._weigh(node)

    def need(self, work: Work, need: GpuNeed) -> None:
        """Register the need of a task."""
        self._needs[work] = need

    def take(self, agent_id: AgentId, works: Sequence[Work]) -> int:
        """Place the first works on an agent; return how many were placed."""
        node = self._nodes[agent_id]
        for number, work in enumerate(works):
            need = self._needs[work]
            gpus = node.find(need)
            if gpus is None:
                return number
            node.change(need, gpus, -1)
            self._where[work] = (node, gpus)
            self.taken += len(gpus) * need.milli
            self._weigh(node)
        return len(works)

    def give_back(self, work: Work) -> None:
        """Free the place of `work`."""
        node, gpus = self._where.pop(work)
        need = self._needs[work]
        node.change(need, gpus, 1)
        self.taken -= len(gpus) * need.milli
        self._weigh(node)

    def _weigh(self, node: GpuNode) -> None:
        """Update the fragmentation after a node has changed. O(kinds of tasks)."""
        self.useless -= node.useless
        node.useless = 0.0
        if any(node.free):
            node.useless = sum(part * node.useless_for(need) for need, part in self._common)
        self.useless += node.useless
