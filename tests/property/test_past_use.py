"""Past use: bounds, order, and how shares converge."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import isclose

from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.master.allocator import Allocator
from croupier.master.allocator.past_use import WHOLE, compare
from croupier.master.core.past_use import past_use, weight_of_age
from croupier.master.core.usage_buckets import HOUR_MS, Account, Sums, UsageHistory
from croupier.model.demand import Demand
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import Resources
from croupier.model.roles import HIGHEST_FACTOR, LOWEST_FACTOR, MAX_HALF_LIFE_MS, RoleSettings
from tests.harness.effort import portion

DAY_MS = 24 * HOUR_MS
CPUS = 16
weights = st.integers(1, 1_000_000)
parts = st.integers(0, WHOLE)
MANY = settings(max_examples=portion(100), deadline=None)
FEW = settings(max_examples=portion(20), deadline=None)
siblings = st.lists(st.tuples(weights, parts), min_size=1, max_size=8)


@MANY
@given(st.integers(0, 400 * DAY_MS), st.integers(HOUR_MS, MAX_HALF_LIFE_MS))
def test_the_weight_of_an_age_is_exact_to_its_stated_error(age_ms: int, half_life_ms: int) -> None:
    exact = 2 ** (-age_ms / half_life_ms)
    found = weight_of_age(age_ms, half_life_ms) / WHOLE
    assert isclose(found, exact, rel_tol=2**-16, abs_tol=2**-31)


@MANY
@given(siblings, parts)
def test_factors_are_bounded_and_do_not_depend_on_the_order(
    given_siblings: list[tuple[int, int]],
    due: int,
) -> None:
    found = [compare(*each, given_siblings, due) for each in given_siblings]
    assert all(LOWEST_FACTOR <= each.factor <= HIGHEST_FACTOR for each in found)
    turned = given_siblings[::-1]
    assert [compare(*each, turned, due) for each in turned] == found[::-1]
    if any(used for _, used in given_siblings) or due:
        assert 999_000 <= sum(each.part_ppm for each in found) <= 1_000_000
    # No share falls below a sixteenth of what it is by weight.
    counted = [
        weight * each.factor for (weight, _), each in zip(given_siblings, found, strict=True)
    ]
    for (weight, _), mine in zip(given_siblings, counted, strict=True):
        share = Fraction(weight, sum(each for each, _ in given_siblings))
        assert Fraction(mine, sum(counted)) >= share / 16


@MANY
@given(st.lists(weights, min_size=1, max_size=6), st.integers(1, 1000), parts)
def test_the_factor_is_1_while_each_uses_its_share(
    given_weights: list[int], use: int, due: int
) -> None:
    used = [(weight, weight * use) for weight in given_weights]
    assert all(compare(*each, used, due).factor == 1000 for each in used)


@MANY
@given(weights, weights, parts, parts, parts)
def test_more_use_never_raises_the_own_factor(
    one: int, other: int, less: int, more: int, due: int
) -> None:
    low, high = sorted((less, more))
    rest = (other, WHOLE // 3)
    assert (
        compare(one, high, [(one, high), rest], due).factor
        <= compare(one, low, [(one, low), rest], due).factor
    )


class Cluster:
    """Roles that want everything, and get what they are entitled to, hour by hour."""

    def __init__(self, half_life_ms: int, roles: dict[str, int]) -> None:
        roles_set = {
            Role(role): RoleSettings(weight, half_life_ms=half_life_ms)
            for role, weight in roles.items()
        }
        self.allocator = Allocator(roles=roles_set)
        self.allocator.add_agent(AgentId("a"), Resources({"cpus": CPUS * 1000}))
        self.history = UsageHistory()
        self.hours = 0
        self.got: list[dict[str, Fraction]] = []

    def join(self, role: str) -> None:
        framework_id = FrameworkId(f"of-{role}")
        self.allocator.add_framework(framework_id, (Role(role),))
        self.allocator.set_demand(framework_id, (Demand(Resources({"cpus": 1000})),))
        self.allocator.connect(framework_id, True)

    def run(self, hours: int) -> None:
        queries = self.allocator.queries
        for _ in range(hours):
            now_ms = self.hours * HOUR_MS
            self.allocator.set_past(past_use(self.history, queries, now_ms))
            roles = list(queries.roles_in_use())
            shares = {str(role): queries.role_entitlement(role) for role in roles}
            self.got.append(shares)
            bucket = self.history.bucket(now_ms, HOUR_MS)
            for role, share in shares.items():
                used = int(share * CPUS * 1000 * HOUR_MS)
                bucket.add(Account(Role(role), "f"), Sums({"cpus": used}))
            bucket.add_capacity({"cpus": CPUS * 1000 * HOUR_MS}, HOUR_MS)
            self.hours += 1


@FEW
@given(st.integers(1, 4), st.integers(1, 4), st.sampled_from([12, 24]))
def test_shares_converge_after_one_role_had_everything(
    one: int, other: int, half_life_h: int
) -> None:
    cluster = Cluster(half_life_h * HOUR_MS, {"ads": one * 1000, "web": other * 1000})
    cluster.join("ads")
    cluster.run(4 * half_life_h)
    cluster.join("web")
    cluster.run(6 * half_life_h)
    mine = Fraction(one, one + other)
    after = [shares["ads"] for shares in cluster.got[4 * half_life_h :]]
    assert after[0] < mine
    # From below, without going beyond, up to the rounding of factors.
    assert all(b >= a - Fraction(1, 500) for a, b in pairwise(after))
    assert abs(after[-1] - mine) < Fraction(1, 50)
    # What the other had is made up for, as far as it is not forgotten.
    past = cluster.allocator.queries.role_status(Role("ads")).past
    assert past is not None
    assert abs(past.part_ppm - past.share_ppm) < 20_000


@FEW
@given(st.permutations(["ads", "web", "ads/prod", "ads/test"]))
def test_the_order_in_which_roles_come_changes_nothing(order: list[str]) -> None:
    def factors(names: list[str]) -> dict[Role, int]:
        cluster = Cluster(24 * HOUR_MS, dict.fromkeys(sorted(names), 1000))
        for name in names:
            cluster.join(name)
        bucket = cluster.history.bucket(0, HOUR_MS)
        for number, name in enumerate(sorted(names), 1):
            used = Sums({"cpus": number * 1000 * HOUR_MS})
            bucket.add(Account(Role(name), "f"), used)
        bucket.add_capacity({"cpus": CPUS * 1000 * HOUR_MS}, HOUR_MS)
        past = past_use(cluster.history, cluster.allocator.queries, HOUR_MS)
        return {role: each.factor for role, each in past.items()}

    assert factors(order) == factors(sorted(order))
