"""Profiles: what each agent can never serve, remembered for all agents alike.

A demand is a misfit on an agent if no unit of it fits in the agent's total, or the agent fails a
constraint. Only a change of the demand, or of the agent's total or attributes, ends that: not free
resources, filters, limits or time. Agents with equal totals, and with equal values of the
attributes that constraints name, have one profile. A profile remembers the kinds of demand that
visits found to be misfits. Later visits pass over all leaves of these kinds without a look at them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import merge
from typing import TYPE_CHECKING, Final

from croupier.master.allocator.kinds import ANY, Entry, Group, Groups, Kind, Kinds, Unmet
from croupier.master.allocator.node import Branch, Leaf
from croupier.model.attributes import Constraint
from croupier.model.devices import without_slots
from croupier.model.resources import NOTHING, Resources

if TYPE_CHECKING:
    from croupier.master.allocator.pooled_agent import PooledAgent

# How many branches a profile keeps the open groups of.
_MOST_BRANCHES = 4_096
# A branch with fewer children is searched as a whole.
_FEW = 8


class Profile:
    """Agents with equal totals and attributes.

    Attributes:
        total: the resources of each of them, without the names of devices.
        facts: their attributes that constraints name.
        devices: what their named devices can serve; None without any.
        agents: how many there are.
        misfits: the kinds that no agent of the profile can serve, and why.
        usable: kinds of one part that each of them could serve if it were empty.
    """

    __slots__ = ("_is_stale", "_open", "agents", "devices", "facts", "misfits", "total", "usable")

    def __init__(
        self, total: Resources, facts: frozenset[tuple[str, str]], devices: object = None
    ) -> None:
        self.total, self.facts, self.devices = total, facts, devices
        self.agents = 0
        self.misfits: dict[Kind, Unmet] = {}
        self.usable: set[Kind] = set()
        # By the groups of a branch: their version, and those that have other kinds than misfits.
        self._open: dict[Groups, tuple[int, list[Group]]] = {}
        self._is_stale = False

    def begin(self) -> None:
        """Begin a visit: from now on, skip what the visits before it learned."""
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


# How much all profiles remember together, some 100 bytes for each kind, before they start again.
MOST_LEARNED: Final = 500_000


class Profiles:
    """The profiles of all agents."""

    def __init__(self, kinds: Kinds, *, remembers: bool = True) -> None:
        """Begin empty; without `remembers`, nothing is ever learned."""
        self._kinds = kinds
        self._remembers = remembers
        self._by_key: dict[tuple[Resources, frozenset[tuple[str, str]], object], Profile] = {}
        # Of all agents, as long as nothing can be learned.
        self._blank = Profile(NOTHING, frozenset())
        self._learned = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def of(self, agent: PooledAgent) -> Profile:
        """Return the agent's profile."""
        if not (self._remembers and self._kinds):
            return self._blank
        version = self._kinds.version
        if agent.profile is not None and agent.profile_version == version:
            return agent.profile
        named = self._kinds.named
        facts = frozenset((name, text) for name, text in agent.facts.items() if name in named)
        # Agents that differ by the ids of their devices only have one profile.
        total, devices = agent.total, None
        if agent.inventory is not None:
            total, devices = without_slots(total), agent.inventory.shape(total)
        key = total, facts, devices
        profile = self._by_key.get(key)
        if profile is None:
            profile = self._by_key[key] = Profile(*key)
        if agent.profile is not profile:
            self.release(agent)
            profile.agents += 1
            agent.profile = profile
        agent.profile_version = version
        return profile

    def release(self, agent: PooledAgent) -> None:
        """Forget the profile of an agent that changed or is removed."""
        profile, agent.profile = agent.profile, None
        if profile is not None:
            profile.agents -= 1
            if not profile.agents:
                self._learned -= len(profile.misfits) + len(profile.usable)
                del self._by_key[profile.total, profile.facts, profile.devices]

    def learn(self, profile: Profile, leaf: Leaf, unmet: Sequence[Constraint | None]) -> None:
        """Remember that the profile can never serve leaves of this kind."""
        self._count_learned()
        profile.learn(leaf.kind, tuple(unmet))

    def learn_usable(self, profile: Profile, leaf: Leaf) -> None:
        """Remember that agents of the profile could serve leaves of this kind if empty."""
        if len(leaf.kind.parts) == 1 and leaf.kind not in profile.usable:
            self._count_learned()
            profile.usable.add(leaf.kind)

    def _count_learned(self) -> None:
        if self._learned >= MOST_LEARNED:
            for each in self._by_key.values():
                each.forget()
            self._learned = 0
        self._learned += 1

    def may_learn(self, leaf: Leaf) -> bool:
        """Return whether anything about the kind of this leaf may be remembered."""
        return self._remembers and leaf.kind is not ANY
