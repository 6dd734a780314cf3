"""Gangs of equal tasks, as flags and job files ask for them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from croupier.model.gang import HOST
from croupier.model.resources import NOTHING, Resources
from croupier.sdk import Gang, Task

# Beside its own resources, for the first task of a gang.
MEETING_POINT: Final = Resources({"ports": 1_000})


@dataclass(frozen=True, slots=True)
class GangSpec:
    """Equal tasks that start together; the first one has a port where they can meet.

    Attributes:
        nodes: the number of tasks. Each is on an agent of its own, if nothing else is said.
        same: an attribute whose value all their agents share; `host`: all are on one agent.
        spread: an attribute; no two tasks are on agents with the same value.
        pack: whether to take few agents, with several tasks on each.
        restarts: how often all start again after one has failed, in the place in the queue that
            they had.
    """

    nodes: int
    same: str = ""
    spread: str = ""
    pack: bool = False
    restarts: int = 0

    def tasks(self, make: Callable[[int, Resources], Task]) -> list[Task]:
        """Return the tasks; `make` makes the one of a rank, with resources beside its own.

        Raises:
            InvalidRequest: if they cannot be a gang.
        """
        is_on_shared_agents = self.pack or self.same == HOST
        spread = self.spread or ("" if is_on_shared_agents else HOST)
        made = (make(rank, NOTHING if rank else MEETING_POINT) for rank in range(self.nodes))
        gang = Gang(same=self.same, spread=spread, pack=self.pack, restarts=self.restarts)
        return gang.members(made)
