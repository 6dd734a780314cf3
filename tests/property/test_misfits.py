"""Visits that skip remembered misfits decide the same as visits that check every framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from croupier.master.allocator import Cause, PassedOver
from croupier.master.allocator import profiles as profiles_module
from croupier.master.allocator.kinds import Groups, Kind
from croupier.master.allocator.node import Leaf
from croupier.master.allocator.pending_demand import Shape
from croupier.master.allocator.pooled_agent import PooledAgent
from croupier.master.allocator.profiles import Profile, Profiles
from croupier.master.allocator.tree import Tree
from croupier.model.attributes import Constraint, equals, facts_of
from croupier.model.demand import Demand, Placement
from croupier.model.ids import AgentId, FrameworkId
from croupier.model.resources import Resources
from tests.harness.allocator_invariants import check_allocator
from tests.harness.effort import portion
from tests.harness.invariants import queued_of
from tests.harness.oracle import Task
from tests.harness.random_driver import ZONES, RandomDriver
from tests.harness.reasons import reasons_of

WORLDS = 90
STEPS = 120
# Causes that hold as long as agent and demand stay as they are.
FOR_GOOD = {Cause.CONSTRAINT, Cause.DOES_NOT_FIT}


class Twin(RandomDriver):
    """A random world, in which visits skip misfits or check every framework."""

    def __init__(self, seed: int, *, remembers: bool) -> None:
        self.visible: list[object] = []
        # Agents that changed.
        self.changed: set[AgentId] = set()
        super().__init__(seed, remembers=remembers)
        for _ in range(4):
            self.framework_comes()

    def apply_random_event(self) -> None:
        more = {
            self.agent_changes: 3,
            self.party_backs_off: 1,
            self.tasks_are_submitted: 3,
            super().apply_random_event: 30,
        }
        (action,) = self.random.choices(list(more), list(more.values()))
        action()

    def agent_changes(self) -> None:
        """Change the total and the attributes of an agent, as its next registration does."""
        agent_id = self.random.choice(list(self.totals))
        before, free = self.totals[agent_id], self.allocator.queries.free(agent_id)
        scalars = dict(before.scalars)
        for name, milli in before.scalars.items():
            unit = 100_000 if name == "mem" else 1000
            most = milli if self.random.random() < 0.5 else milli + 2 * unit
            used = milli - free[name]
            scalars[name] = max(used, self.random.randint(1, most // unit) * unit)
        self.totals[agent_id] = Resources(scalars, before.ranges)
        self.changed.add(agent_id)
        zone = {"zone": self.random.choice(ZONES)} if self.random.random() < 0.8 else {}
        self.facts[agent_id] = facts_of("", zone)
        self.allocator.change_agent(agent_id, self.totals[agent_id], "", zone)

    def tasks_are_submitted(self) -> None:
        member = self.random.choice(list(self.members.values()))
        amounts = self.random.choice(("cpus:1", "cpus:4;mem:100MB", "gpus:1", "cpus:9"))
        asked = (equals("zone", self.random.choice(ZONES)),) if self.random.random() < 0.4 else ()
        placement = Placement(asked, self.random.choice((None, None, 1, 2)))
        shape = Shape(Resources.parse(amounts), placement)
        role = self.random.choice(member.roles)
        self.allocator.queue(member.framework_id, role, shape, self.random.randint(1, 3))

    def framework_goes(self) -> None:
        self.withdraw_all()
        super().framework_goes()

    def framework_changes_roles(self) -> None:
        self.withdraw_all()
        super().framework_changes_roles()

    def withdraw_all(self) -> None:
        for framework_id in self.members:
            queued = queued_of(self.allocator, framework_id)
            for (role, shape), number in queued.items():
                self.allocator.queue(framework_id, role, shape, -number)

    def agent_goes(self) -> None:
        before = set(self.totals)
        super().agent_goes()
        self.changed |= before - self.totals.keys()

    def party_backs_off(self) -> None:
        member = self.random.choice(list(self.members.values()))
        agent_id = self.random.choice(list(self.totals))
        since = self.now - 10.0
        self.allocator.answers.unused(member.framework_id, agent_id, since, self.now)

    def deal(self) -> None:
        """Visit one agent, or all; a slice in between depends on how many checks there are."""
        grants = self.allocator.run(self.now, self.random.choice((1, 10**9)))
        self.visible.append(grants)
        for grant in grants:
            if grant.shape is None:
                self.offers.append(grant)
                continue
            for _ in range(sum(number for _, number in grant.units)):
                self.allocator.charges.launch(*grant.place, grant.shape.unit)
                self.tasks.append(Task(grant.place, grant.shape.unit))
            self.allocator.launched(grant)

    def reasons(self, framework_id: FrameworkId) -> list[PassedOver]:
        return reasons_of(self.allocator.queries, framework_id, None, self.now)


def compare(seed: int) -> int:
    """Drive both twins; return how many reasons of misfits were compared."""
    plain, quick = Twin(seed, remembers=False), Twin(seed, remembers=True)
    compared = 0
    for step in range(STEPS):
        for twin in (plain, quick):
            twin.apply_random_event()
            if step % 4 == 0:
                while twin.allocator.has_dirty_agents:
                    twin.deal()
        check_allocator(quick.allocator)
        check_misfits(quick)
        assert plain.visible == quick.visible, (plain.name, step)
        assert plain.allocator.next_wakeup() == quick.allocator.next_wakeup()
        plain.visible.clear()
        quick.visible.clear()
        for framework_id in plain.members:
            reasons = plain.reasons(framework_id), quick.reasons(framework_id)
            demands = quick.allocator.queries.demands(framework_id)
            queued = queued_of(quick.allocator, framework_id)
            compared += compare_reasons(*reasons, demands, plain.changed, has_queue=bool(queued))
    return compared


def compare_all() -> None:
    for seed in range(WORLDS):
        compare(seed)


def misfit(kind: Kind, agent: PooledAgent) -> tuple[Constraint | None, ...] | None:
    """Return why an agent can never serve any part of a kind; None if it may serve one."""
    found = []
    for unit, constraints, _ in kind.parts:
        unmet = next((each for each in constraints if not each.holds(agent.facts)), None)
        if unmet is None and unit.units_within(agent.total, 1):
            return None
        found.append(unmet)
    return tuple(found)


def check_misfits(world: Twin) -> None:
    """Assert that no agent could serve what its profile skips."""
    version = world.tree.kinds.version
    for agent in world.agents.agents.values():
        if agent.profile is not None and agent.profile_version == version:
            for kind, unmet in agent.profile.misfits.items():
                assert misfit(kind, agent) == unmet


def compare_reasons(
    plain: list[PassedOver],
    quick: list[PassedOver],
    demands: Sequence[Demand],
    gone: set[AgentId],
    *,
    has_queue: bool,
) -> int:
    """Compare the reasons of a framework; those of agents in `gone` may be forgotten."""
    # With several shapes, other ones may be left by now than at the visit.
    if len(demands) != 1 or has_queue:
        return 0
    found = {(each.role, each.cause): each for each in quick}
    compared = 0
    for each in plain:
        known = found.get((each.role, each.cause))
        if each.cause in FOR_GOOD:
            assert known is not None or each.about in gone, (plain, quick)
            if known is not None and known.about == each.about and each.about not in gone:
                assert known.detail == each.detail or demands[0].min_per_offer > 1
                compared += 1
        else:
            # If the visit ended before it was the framework's turn, only the plain one had nothing.
            assert each in quick or not FOR_GOOD.isdisjoint(cause for _, cause in found), plain
    return compared


@pytest.mark.parametrize("part", range(3))
def test_the_same_is_dealt_as_without_memory(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles_module, "_FEW", 1)
    compared = sum(compare(seed) for seed in range(part, portion(WORLDS), 3))
    print(f"{compared} reasons compared")
    assert compared > portion(300)


def stays(_tree: Tree, _leaf: Leaf) -> None:
    """Keep the kind of a leaf whose demand changed."""


def is_shared(profiles: Profiles, agent: PooledAgent) -> Profile:
    """Return one profile for all agents, whatever they have."""
    profile = next(iter(profiles._by_key.values()), None) or Profile(agent.total, frozenset())
    return profiles._by_key.setdefault((profile.total, profile.facts, None), profile)


@pytest.mark.parametrize(
    ("what", "name", "broken"),
    [
        (Tree, "update_kind", stays),
        (Profiles, "of", is_shared),
        (Groups, "remove", lambda _groups, _entry: None),
    ],
)
def test_a_broken_part_is_detected(
    what: object, name: str, broken: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiles_module, "_FEW", 1)
    monkeypatch.setattr(what, name, broken)
    with pytest.raises((AssertionError, ValueError)):
        compare_all()
