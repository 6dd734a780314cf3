"""The room for a new framework: counted as a pass would deal it, and without any change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from croupier.master.allocator import Cause, Rules
from croupier.master.allocator.room import Room
from croupier.model.attributes import equals
from croupier.model.demand import Demand
from croupier.model.ids import NO_FRAMEWORK, AgentId, FrameworkId, Role
from tests.harness.allocator_fixture import AllocatorFixture, amount, role_of, want


def room(fixture: AllocatorFixture, demand: Demand) -> Room:
    counting = fixture.allocator.queries.room_for(demand, fixture.now)
    while True:
        try:
            next(counting)
        except StopIteration as over:
            found: Room = over.value
            return found


def test_units_are_counted_by_agent() -> None:
    fixture = AllocatorFixture()
    fixture.agent("a", "cpus:4;mem:8GB", rack="r1")
    fixture.agent("b", "cpus:9;mem:3GB", rack="r1")
    fixture.agent("c", "cpus:1;mem:8GB", rack="r1")
    fixture.agent("d", "cpus:8;mem:8GB", rack="r2")
    found = room(fixture, want("cpus:2;mem:1GB", None, equals("rack", "r1")))
    assert (found.units, found.fitting, found.limit) == (5, 5, "")
    assert found.agents == [("b", 3), ("a", 2)]
    assert {cause: agents for cause, (agents, _) in found.rejected.items()} == {
        Cause.DOES_NOT_FIT: 1,
        Cause.CONSTRAINT: 1,
    }
    # Neither is large enough for one more.
    assert found.full == {}


def test_a_limit_leaves_less_than_the_agents_have() -> None:
    fixture = AllocatorFixture(roles={"ads": role_of(limit="cpus:3")})
    fixture.agent("a", "cpus:8;mem:8GB")
    for role in ("ads", "ads/new"):
        found = room(fixture, want("cpus:1;mem:1GB", role=role))
        assert (found.units, found.fitting) == (3, 8)
        # A role without frameworks has no node in the tree.
        assert bool(found.limit) == bool(role)
    assert room(fixture, want("cpus:1;mem:1GB")).units == 8


def test_a_hold_is_for_its_role() -> None:
    fixture = AllocatorFixture(roles={"ads": role_of(limit="cpus:2")})
    fixture.agent("a", "cpus:4;mem:8GB")
    owner = (NO_FRAMEWORK, Role("ads"))
    fixture.allocator.holds.make(AgentId("a/h"), AgentId("a"), owner, amount("cpus:2;mem:2GB"))
    assert room(fixture, want("cpus:1;mem:1GB")).units == 2
    # The hold uses the limit up, and tasks in it are not charged again.
    assert room(fixture, want("cpus:1;mem:1GB", role="ads")).units == 2
    assert room(fixture, want("cpus:1;mem:1GB", role="web")).units == 2


def test_a_scarce_resource_is_kept_for_those_who_ask_for_it() -> None:
    fixture = AllocatorFixture(rules=Rules(hold_s=0.0))
    fixture.agent("a", "cpus:4;mem:8GB;gpus:1")
    assert room(fixture, want("cpus:1;mem:1GB")).units == 4
    fixture.framework("train", want("cpus:1;mem:1GB;gpus:1"))
    found = room(fixture, want("cpus:1;mem:1GB"))
    assert (found.units, list(found.rejected)) == (0, [Cause.SCARCE])


@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    used=st.integers(0, 3),
    limit=st.integers(0, 8),
    cpus=st.integers(1, 3),
)
def test_as_many_units_are_dealt_as_were_counted(
    sizes: list[int], used: int, limit: int, cpus: int
) -> None:
    fixture = AllocatorFixture(roles={"new": role_of(limit=f"cpus:{limit}")})
    for number, size in enumerate(sizes):
        fixture.agent(f"a{number}", f"cpus:{size};mem:{size}GB")
    fixture.framework("old", want("cpus:1;mem:512MB", used))
    fixture.fill()
    unit = want(f"cpus:{cpus};mem:512MB", role="new")
    before = room(fixture, unit)
    assert room(fixture, unit) == before
    fixture.framework("new", unit)
    dealt = sum(number for grant in fixture.fill() for _, number in grant.units)
    assert dealt == before.units
    assert (
        not fixture.allocator.queries.pending_units(FrameworkId("new"))
        or not limit
        or (room(fixture, unit).units == 0)
    )
