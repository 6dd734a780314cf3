"""A profile: what agents with equal totals and attributes can never serve; see `profiles`."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import merge

from croupier.master.allocator.kinds import Entry, Group, Groups, Kind, Unmet
from croupier.master.allocator.node import Branch
from croupier.model.ids import AgentId
from croupier.model.resources import Resources

# How many branches a profile keeps the open groups of.
_MOST_BRANCHES = 4_096
# A branch with fewer children is searched as a whole.
_FEW = 8


class Profile:
    """Agents with equal totals and attributes.

    Attributes:
        total: the resources of each of them.
        facts: their attributes that constraints name.
        agents: how many there are.
        misfits: the kinds that no agent of the profile can serve, and why.
        usable: kinds of one part that each of them could serve if it were empty.
        pass_number: the latest pass that visited one.
        agent_id: the agent of the last visit.
        visit: the number of that visit among all visits.
    """

    __slots__ = (
        "_is_stale",
        "_open",
        "agent_id",
        "agents",
        "facts",
        "misfits",
        "pass_number",
        "total",
        "usable",
        "visit",
    )

    def __init__(self, total: Resources, facts: frozenset[tuple[str, str]]) -> None:
        self.total, self.facts = total, facts
        self.agents = 0
        self.misfits: dict[Kind, Unmet] = {}
        self.usable: set[Kind] = set()
        self.agent_id = AgentId("")
        self.pass_number = self.visit = 0
        # By the groups of a branch: their version, and those that have other kinds than misfits.
        self._open: dict[Groups, tuple[int, list[Group]]] = {}
        self._is_stale = False

    def begin(self, agent_id: AgentId, pass_number: int, visit: int) -> None:
        """Begin a visit: from now on, skip what the visits before it learned."""
        self.agent_id, self.pass_number, self.visit = agent_id, pass_number, visit
        if self._is_stale or len(self._open) > _MOST_BRANCHES:
            self._open.clear()
            self._is_stale = False

    def learn(self, kind: Kind, unmet: Unmet) -> None:
        """Remember a misfit."""
        self.misfits[kind] = unmet
        self._is_stale = True

    def forget(self) -> None:
        """Forget all that was learned."""
        self.misfits.clear()
        self.usable.clear()
        self._is_stale = True

    def entries(self, branch: Branch) -> Iterable[Entry]:
        """Return entries of the branch in order, without most that have misfits only."""
        whole = branch.order
        if len(whole) < _FEW:
            return whole
        groups = branch.groups
        if groups is None:
            groups = branch.groups = Groups(whole)
        known = self._open.get(groups)
        if known is None or known[0] != groups.version:
            known = self._open[groups] = groups.version, groups.without(self.misfits)
        found = known[1]
        if len(found) > 1:
            found = [group for group in found if group]
        if len(found) < 2:
            return found[0] if found else ()
        # To merge many groups costs more than to pass over a few nodes.
        is_worth_it = len(whole) - sum(map(len, found)) > 2 * len(found)
        return merge(*found) if is_worth_it else whole
