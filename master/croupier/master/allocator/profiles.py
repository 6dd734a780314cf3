"""Profiles: what each agent can never serve, remembered for all agents alike.

A demand is a misfit on an agent if no unit of it fits in the agent's total, or the agent fails a
constraint. Only a change of the demand, or of the agent's total or attributes, ends that: not free
resources, filters, limits or time. Agents with equal totals, and with equal values of the
attributes that constraints name, have one profile. A profile remembers the kinds of demand that
visits found to be misfits. Later visits pass over all leaves of these kinds without a look at them.

So such a leaf is not told the reason at each visit: it is worked out from the profiles' visits when
an operator asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import merge
from typing import TYPE_CHECKING, Final

from croupier.master.allocator.kinds import ANY, Entry, Group, Groups, Kind, Kinds, Unmet, part_of
from croupier.master.allocator.node import Branch, Leaf
from croupier.master.allocator.reasons import Case, Cause
from croupier.master.allocator.rejections import Shortage, Text
from croupier.model.attributes import Constraint
from croupier.model.ids import AgentId
from croupier.model.resources import NOTHING, Resources

if TYPE_CHECKING:
    from croupier.master.allocator.agent_pool import PooledAgent

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


# How much all profiles remember together, some 100 bytes for each kind, before they start again.
MOST_LEARNED: Final = 500_000
# The most steps of matching patterns, of some 5 ns each, in one answer to an operator.
_STEPS: Final = 1_000_000


class Profiles:
    """The profiles of all agents."""

    def __init__(self, kinds: Kinds, *, remembers: bool = True) -> None:
        """Begin empty; without `remembers`, nothing is ever learned."""
        self._kinds = kinds
        self._remembers = remembers
        self._by_key: dict[tuple[Resources, frozenset[tuple[str, str]]], Profile] = {}
        # Of all agents, as long as nothing can be learned.
        self._blank = Profile(NOTHING, frozenset())
        self._learned = 0
        self.visits = 0

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
        key = agent.total, facts
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
                del self._by_key[profile.total, profile.facts]

    def visit(self, agent: PooledAgent, pass_number: int) -> Profile:
        """Return the agent's profile at the begin of a visit."""
        profile = self.of(agent)
        self.visits += 1
        profile.begin(agent.agent_id, pass_number, self.visits)
        return profile

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

    def cases(self, leaf: Leaf) -> dict[Cause, Case]:
        """Return why visits passed the leaf over as a misfit. O(profiles)."""
        found: dict[Cause, Case] = {}
        latest: dict[Cause, int] = {}
        steps = _STEPS
        for profile in self._by_key.values() if leaf.kind is not ANY else ():
            if profile.visit <= leaf.reasons.since:
                continue
            unmet = profile.misfits.get(leaf.kind)
            if unmet is None and steps > 0:
                facts = dict(profile.facts)
                steps -= leaf.kind.steps(facts)
                unmet = leaf.kind.misfit(profile.total, facts)
            if unmet is None:
                continue
            cause, detail = _rejection(leaf, unmet, profile.total)
            # All agents of a profile are alike, also those that this pass did not visit.
            before = found.get(cause, (0, 0, profile.agent_id, detail))
            count = before[1] + profile.agents
            found[cause] = before[0], count, *before[2:]
            if profile.visit > latest.get(cause, 0):
                latest[cause] = profile.visit
                found[cause] = profile.pass_number, count, profile.agent_id, detail
        return found

    def check(self, agents: Iterable[PooledAgent]) -> None:
        """Assert that each agent has its profile, and count misfits."""
        counts = Counter(agent.profile for agent in agents if agent.profile is not None)
        assert counts == {each: each.agents for each in self._by_key.values()}
        assert all(agent.profile is None or agent.profile.total == agent.total for agent in agents)
        learned = (len(each.misfits) + len(each.usable) for each in self._by_key.values())
        assert self._learned == sum(learned)


def _rejection(leaf: Leaf, unmet: Unmet, total: Resources) -> tuple[Cause, object]:
    """Return the rejection of the leaf's first shape that has units left."""
    failed = dict(zip(leaf.kind.parts, unmet, strict=True))
    waiting = [each for each in leaf.pending or () if part_of(each) in failed]
    pending = next((each for each in waiting if each.left), waiting[0])
    constraint = failed[part_of(pending)]
    if constraint is not None:
        return Cause.CONSTRAINT, Text("does not pass {}", constraint)
    return Cause.DOES_NOT_FIT, Shortage(pending.demand.unit, pending.least, total, total)
