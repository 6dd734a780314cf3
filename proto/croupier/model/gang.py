"""Gangs: tasks that are placed together, on several agents, and end together.

The tasks of a gang are its members, numbered by rank from 0. All of them start, or none. What the
end of a member means to the others is its part, as in a group of tasks; but a member whose agent
is unreachable counts as ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from croupier.model.errors import InvalidRequest
from croupier.model.ids import check_id
from croupier.model.task_group import GroupPart
from croupier.model.value import value

MAX_GANG_TASKS: Final = 256
MAX_RESTARTS: Final = 100
# In place of an attribute: the agent itself.
HOST: Final = "host"
# For programs that meet at rank 0, if that has no port of its own; the default of torchrun.
DEFAULT_PORT: Final = 29_500
# The variable with the path of the list of hosts, and its name in the sandbox.
HOSTFILE_VARIABLE: Final = "CROUPIER_HOSTFILE"
HOSTFILE: Final = ".croupier-hostfile"
_MAX_ATTRIBUTE: Final = 255


@value
class GangPlacement:
    """Where the members of a gang may run, beside the constraints of each.

    Attributes:
        same: an attribute whose value all their agents share; empty: none.
        spread: an attribute of which no two members share a value, or `host`; empty: none.
        pack: whether to take few agents, those with the most free first.
    """

    same: str = ""
    spread: str = ""
    pack: bool = False

    def check(self) -> None:
        """Raise InvalidRequest if no placement can be so."""
        for name in (self.same, self.spread):
            if len(name) > _MAX_ATTRIBUTE:
                raise InvalidRequest(f"the attribute {name[:80]!r} of a gang is too long")
        if self.same == HOST and self.spread:
            raise InvalidRequest("a gang on one host cannot be spread")
        if self.same and self.same == self.spread:
            raise InvalidRequest(f"a gang cannot have the same {self.same}, and be spread over it")
        if self.pack and self.spread:
            raise InvalidRequest("a gang is packed or spread, not both")


ANY_AGENTS: Final = GangPlacement()


@value
class GangMember:
    """The membership of a task in a gang.

    Attributes:
        size: the number of members.
        part: what its end means to the others.
        hosts: the hostname of each member's agent, by rank; empty before it is placed.
        port: a port of the agent of rank 0; 0 before it is placed.
        restarts: how often all members go back to their queue together after one has failed.
    """

    gang_id: str
    rank: int
    size: int
    part: GroupPart = GroupPart.MEMBER
    placement: GangPlacement = ANY_AGENTS
    hosts: tuple[str, ...] = ()
    port: int = 0
    restarts: int = 0

    @property
    def text_size(self) -> int:
        """Characters of its text."""
        placement = self.placement
        names = (self.gang_id, placement.same, placement.spread, *self.hosts)
        return sum(map(len, names))

    def check(self) -> None:
        """Raise InvalidRequest if it is malformed."""
        check_id("gang", self.gang_id)
        self.placement.check()
        if not 1 <= self.size <= MAX_GANG_TASKS:
            raise InvalidRequest(f"a gang has 1 to {MAX_GANG_TASKS} tasks, not {self.size}")
        if not 0 <= self.rank < self.size:
            raise InvalidRequest(f"a gang of {self.size} tasks has no rank {self.rank}")
        if not 0 <= self.restarts <= MAX_RESTARTS:
            raise InvalidRequest(f"a gang has 0 to {MAX_RESTARTS} restarts, not {self.restarts}")
        if self.hosts and len(self.hosts) != self.size:
            raise InvalidRequest("a gang has one host for each rank")

    def variables(self) -> dict[str, str]:
        """Return the variables from which a placed member knows itself and the others."""
        assert self.hosts, "it is not placed"
        host = self.hosts[self.rank]
        local = [rank for rank, each in enumerate(self.hosts) if each == host]
        first = dict.fromkeys(self.hosts)
        rank, size = str(self.rank), str(self.size)
        local_rank, local_size = str(local.index(self.rank)), str(len(local))
        return {
            "CROUPIER_GANG_ID": self.gang_id,
            "CROUPIER_GANG_HOSTS": ",".join(self.hosts),
            "CROUPIER_RANK": rank,
            "CROUPIER_SIZE": size,
            "CROUPIER_LOCAL_RANK": local_rank,
            "CROUPIER_NODE_RANK": str(list(first).index(host)),
            "CROUPIER_NODES": str(len(first)),
            # As torch, and what follows it, expects.
            "RANK": rank,
            "WORLD_SIZE": size,
            "LOCAL_RANK": local_rank,
            "LOCAL_WORLD_SIZE": local_size,
            "MASTER_ADDR": self.hosts[0],
            "MASTER_PORT": str(self.port or DEFAULT_PORT),
        }

    def hostfile(self) -> str:
        """Return the hosts as Open MPI reads them: one in a line, with its number of members."""
        slots: dict[str, int] = {}
        for host in self.hosts:
            slots[host] = slots.get(host, 0) + 1
        return "".join(f"{host} slots={number}\n" for host, number in slots.items())


def check_gang(members: Sequence[GangMember | None]) -> None:
    """Raise InvalidRequest if these are not all members of one gang, in the order of rank."""
    first = members[0]
    if first is None:
        raise InvalidRequest("tasks that are one gang must name it, in TaskInfo.gang")
    for rank, each in enumerate(members):
        if each is None or each.gang_id != first.gang_id:
            raise InvalidRequest(f"a task does not name gang {first.gang_id}, as its call does")
        if (each.rank, each.size) != (rank, len(members)):
            raise InvalidRequest(
                f"gang {first.gang_id} has {len(members)} tasks: the one in place {rank} has rank"
                f" {each.rank} of {each.size}"
            )
        if (each.placement, each.restarts) != (first.placement, first.restarts):
            raise InvalidRequest(
                f"the tasks of gang {first.gang_id} ask for different placements or restarts"
            )
        if each.hosts or each.port:
            raise InvalidRequest("the master itself says on which hosts a gang runs")
    parts = [each.part for each in members if each is not None]
    if parts.count(GroupPart.LEADER) > 1:
        raise InvalidRequest(f"gang {first.gang_id} has more than one leader")
    if all(part is GroupPart.SIDECAR for part in parts):
        raise InvalidRequest(f"gang {first.gang_id} has sidecars only; one task must be a member")
