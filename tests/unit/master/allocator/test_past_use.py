"""Factors from past use: vectors by hand, and what the weights of the tree become."""

from __future__ import annotations

import pytest

from croupier.master.allocator.past_use import WHOLE, PastUse, compare, counted_weight
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings
from tests.harness.allocator_fixture import AllocatorFixture, want

WEEK_MS = 7 * 24 * 3_600_000


def percent(number: int) -> int:
    return number * WHOLE // 100


# Name, due, (weight, used) of all siblings in percent, and the factors in thousandths.
VECTORS = [
    # 0.4 / 0.61 and 0.6 / 0.39.
    ("the example of the documentation", 100, [(40, 61), (60, 39)], [656, 1538]),
    # p = 0.61 + 0.4 x 0.19 = 0.686, and 0.2 + 0.6 x 0.19 = 0.314.
    ("what nobody used is divided by weight", 100, [(40, 61), (60, 20)], [583, 1911]),
    ("without a past nothing changes", 100, [(40, 0), (60, 0)], [1000, 1000]),
    ("each used its share", 100, [(1, 25), (2, 50), (1, 25)], [1000, 1000, 1000]),
    ("each used its share, and there is a rest", 100, [(1, 10), (2, 20)], [1000, 1000]),
    ("siblings that need different resources", 100, [(1, 90), (1, 90)], [1000, 1000]),
    # 0.5 / 1; who used nothing has the highest.
    ("one used everything", 100, [(1, 100), (1, 0)], [500, 4000]),
    # 0.1 / 1 is below the lowest.
    ("one of little weight used everything", 100, [(1, 100), (9, 0)], [250, 4000]),
    # p = (0.09 + 0.5 x 0.4) / 0.5 = 0.58, and (0.01 + 0.5 x 0.4) / 0.5 = 0.42.
    ("below a role that was due half", 50, [(1, 9), (1, 1)], [862, 1190]),
    # Beyond what the role was due, nothing is idle: 0.5 / 0.75, and 0.5 / 0.25.
    ("below a role that used more than it was due", 10, [(1, 30), (1, 10)], [667, 2000]),
    ("a role alone", 100, [(5, 80)], [1000]),
]


@pytest.mark.parametrize(("name", "due", "siblings", "factors"), VECTORS)
def test_a_vector(name: str, due: int, siblings: list[tuple[int, int]], factors: list[int]) -> None:
    given = [(weight * 1000, percent(used)) for weight, used in siblings]
    found = [compare(*each, given, percent(due)).factor for each in given]
    assert found == factors, name


def test_the_parts_are_those_of_the_sentence() -> None:
    siblings = [(40_000, percent(61)), (60_000, percent(39))]
    past = compare(*siblings[0], siblings, WHOLE)
    assert (past.part_ppm, past.share_ppm) == (609_999, 400_000)


def test_a_counted_weight_is_rounded_and_never_0() -> None:
    assert counted_weight(2000, 656) == 1312
    assert counted_weight(1, 250) == 1
    assert counted_weight(3, 500) == 2


def test_past_use_changes_weights_entitlements_and_what_would_be() -> None:
    roles = {name: RoleSettings(half_life_ms=WEEK_MS) for name in ("ads", "web")}
    fixture = AllocatorFixture(roles=roles)
    fixture.agent("a", "cpus:12;mem:12GB")
    fixture.framework("f1", want("cpus:1;mem:1GB"), roles=["ads"])
    fixture.framework("f2", want("cpus:1;mem:1GB"), roles=["web"])
    allocator, queries = fixture.allocator, fixture.allocator.queries
    allocator.set_past({Role("ads"): PastUse(666_666, 500_000, 500)})
    assert queries.role_entitlement(Role("ads")) * 3 == 1
    status = queries.role_status(Role("ads"))
    assert status.past == PastUse(666_666, 500_000, 500)
    assert status.settings.weight == 1000

    # Twice the weight, and the same past.
    twice = RoleSettings(2000, half_life_ms=WEEK_MS)
    assert queries.what_if({Role("ads"): twice}).entitlement(Role("ads")) * 2 == 1
    # Without a half-life the past does not count.
    assert queries.what_if({Role("ads"): RoleSettings()}).entitlement(Role("ads")) * 2 == 1
    allocator.set_role(Role("ads"), RoleSettings())
    assert queries.role_entitlement(Role("ads")) * 2 == 1
    allocator.set_role(Role("ads"), RoleSettings(half_life_ms=WEEK_MS))
    assert queries.role_entitlement(Role("ads")) * 3 == 1
    allocator.set_past({})
    assert queries.role_entitlement(Role("ads")) * 2 == 1
