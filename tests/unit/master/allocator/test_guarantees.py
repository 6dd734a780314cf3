"""Guarantees: frameworks below one come before all that are not."""

from __future__ import annotations

from fractions import Fraction

import pytest

from croupier.master.allocator import Rules, policies
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.roles import RoleSettings
from tests.harness.allocator_fixture import AllocatorFixture, amount, role_of, want


def cpus(fixture: AllocatorFixture, *names: str, total: int) -> list[Fraction]:
    return [fixture.allocator.queries.share(FrameworkId(name)) * total for name in names]


@pytest.mark.parametrize("policy", policies.NAMES)
def test_guarantees_come_first_under_every_policy(policy: str) -> None:
    fixture = AllocatorFixture(policies.make(policy), roles={"g/x": role_of(guarantee="cpus:6")})
    for name in ("e", "f"):
        fixture.framework(name, want("cpus:1"))
    fixture.framework("g", want("cpus:1"), roles=["g/x"])
    fixture.agent("m", "cpus:6")
    fixture.fill()
    assert cpus(fixture, "g", total=6) == [6]


class TestLargeUnits:
    """Units of `b` are larger than the gaps that tasks of `a` leave on 8 cpus and 8 GB."""

    SMALL, LARGE = "cpus:1;mem:512MB", "cpus:1;mem:2GB"

    def contended(self, *agents: str, **roles: RoleSettings) -> AllocatorFixture:
        """Let tasks of `a` use all resources but those of three units of `b`."""
        roles = {"b": role_of(guarantee="cpus:4"), **roles}
        fixture = AllocatorFixture(rules=Rules(hold_s=30.0), roles=roles)
        fixture.framework("b", want(self.LARGE, 3))
        fixture.agent("m", "cpus:8;mem:8GB")
        fixture.fill()
        fixture.framework("a", want(self.SMALL))
        fixture.fill()
        assert cpus(fixture, "a", total=8) == [4]
        fixture.demand("b", want(self.LARGE))
        assert fixture.deal() == []
        return fixture

    def end(self, fixture: AllocatorFixture, name: str, unit: str) -> None:
        fixture.allocator.charges.release(FrameworkId(name), Role(name), AgentId("m"), amount(unit))

    def test_the_guarantee_is_met_under_churn(self) -> None:
        """Tasks of both end all the time; freed resources go to the first in order."""
        fixture = self.contended()
        seen = []
        for second in range(24):
            for name, unit in (("a", self.SMALL), ("a", self.SMALL), ("b", self.LARGE)):
                if fixture.allocator.queries.role_share(Role(name)):
                    self.end(fixture, name, unit)
                    fixture.fill()
            fixture.wait(1.0)
            seen.append(cpus_of(fixture, "b"))
            assert second < 8 or seen[-1] == 4, seen


def cpus_of(fixture: AllocatorFixture, role: str) -> int:
    return fixture.tree.roles[Role(role)].held.get("cpus", 0) // 1000
