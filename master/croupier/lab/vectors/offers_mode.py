"""Mode offers: one client that accepts, among clients that decline every offer.

Rule: a naive master's filters end after a number of cycles alone, as in Mesos (MESOS-6111); the
recommended answer is the allocator's, which also waits until every client was offered the agent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

from croupier.lab.engine_cluster import EngineCluster
from croupier.lab.engine_rule import EngineRule, role_of
from croupier.lab.policies import Unrotated
from croupier.lab.solvers.filling import Eligible, demand_of
from croupier.lab.solvers.pools import Forest, Pool
from croupier.lab.vectors.facts import Fact
from croupier.lab.vectors.forests import ENGINE, forest_of, representable
from croupier.lab.vectors.modes import Runs
from croupier.lab.vectors.preemption_mode import check_words
from croupier.lab.vectors.vector import Unreadable, Vector, shortened
from croupier.master.allocator import Rules
from croupier.master.allocator.policies import Drf
from croupier.master.allocator.pooled_agent import Useful
from croupier.model.ids import AgentId
from croupier.model.resources import Resources

_DEFAULT_REFUSE = Fraction(5)
_CYCLES = 300
_REFUSE = re.compile(r"refuse (\d{1,6}(?:\.\d{1,6})?) ?s\b")


def run_offers(vector: Vector, policy: str) -> Runs:
    """Find the cycle of the first offer to the client that the expected keys name."""
    if policy != "offers":
        raise Unreadable(f"policy {shortened(policy)} is not known in mode offers")
    check_words(vector, _REFUSE)
    facts: list[Fact] = [
        ("naive_first_offer_to_(.+)", lambda _, client: _first_naive_offer(vector, client)),
        ("recommended_first_offer_to_(.+)_cycle", lambda _, client: _first_offer(vector, client)),
    ]
    yield ENGINE, facts


def _first_naive_offer(vector: Vector, accepting: str) -> int | None:
    vector.check_client(accepting)
    forest = forest_of(vector)
    for path, count in _initial_tasks(vector, forest, accepting).items():
        forest.start(forest.by_path[path], count)
    with representable():
        rule = EngineRule(forest, Unrotated())
    agents = [agent for agent, free in enumerate(vector.machines()) if any(free)]
    filtered_until: dict[tuple[Pool, int], Fraction] = {}
    for cycle, agent in product(range(_cycles_of(vector)), agents):
        filtered = {c for (c, on), until in filtered_until.items() if on == agent and until > cycle}
        client = rule.pick(forest, _not_in(filtered))
        if client is not None and client.path == accepting:
            return cycle
        if client is not None:
            filtered_until[client, agent] = cycle + _refusal_of(vector)
    return None


def _not_in(filtered: set[Pool]) -> Eligible:
    return lambda client: client.wants and client not in filtered


class _AnyRemainder(Useful):
    """Every remainder is worth offering."""

    def holds(self, free: Resources) -> bool:
        return bool(free)


def _first_offer(vector: Vector, accepting: str) -> int | None:
    vector.check_client(accepting)
    with representable():
        cluster = _decliners(vector, accepting)
    allocator, wanted = cluster.allocator, cluster.ids[cluster.forest.by_path[accepting]]
    for cycle in range(_cycles_of(vector)):
        allocator.wake(float(cycle))
        grants = []
        while allocator.has_dirty_agents:
            grants += allocator.run(float(cycle))
        if any(grant.framework_id == wanted for grant in grants):
            return cycle
        until = cycle + float(_refusal_of(vector))
        for grant in grants:
            settled = (*grant.place, grant.units)
            allocator.settle_offers(*settled, unused=grant.resources, refused_until=until)
    return None


def _decliners(vector: Vector, accepting: str) -> EngineCluster:
    """Return the allocator with clients that declare no demand.

    One more agent, which is not offered, has the part of `capacity` that no machine has, and runs
    the initial tasks.
    """
    forest, machines = forest_of(vector), vector.machines()
    before = _initial_tasks(vector, forest, accepting)
    rest = [total - there for total, there in zip(vector.capacity, vector.total(), strict=True)]
    if min(rest) < 0:
        raise Unreadable("the machines have more than `capacity`")
    rules = Rules(_AnyRemainder(), hold_s=0.0, scarce=frozenset(), remembers_misfits=True)
    cluster = EngineCluster(forest, [*machines, rest], Drf(), rules, declares=False)
    allocator, elsewhere = cluster.allocator, AgentId(f"a{len(machines)}")
    allocator.activate_agent(elsewhere, False)
    for path, count in before.items():
        client = forest.by_path[path]
        amount = cluster.terms.resources(count * need for need in demand_of(client))
        if not amount <= allocator.queries.free(elsewhere):
            raise Unreadable("`initial` tasks run on the machines that are offered")
        allocator.charges.charge(elsewhere, [(cluster.ids[client], role_of(client), amount)])
    return cluster


def _cycles_of(vector: Vector) -> int:
    """Return how many cycles to wait for the first offer."""
    return max(_CYCLES, 20 * len(vector.clients))


def _initial_tasks(vector: Vector, forest: Forest, accepting: str) -> dict[str, int]:
    """Return the tasks that run at first, by client.

    They are `initial`, or tasks of the accepting client that use the part of `capacity` that no
    machine has. Raises Unreadable if that part is not a whole number of tasks.
    """
    if vector.initial:
        return dict(vector.initial)
    lacking = [total - left for total, left in zip(vector.capacity, vector.total(), strict=True)]
    if not any(lacking):
        return {}
    client = forest.by_path[accepting]
    count = _whole_tasks(client, lacking) if min(lacking) >= 0 else None
    if count is None:
        raise Unreadable(
            f"`capacity` is more than all machines by {[str(a) for a in lacking]}, which is no"
            f" number of tasks of {shortened(accepting)},"
            f" {[str(a) for a in demand_of(client)]} each"
        )
    return {accepting: count}


def _whole_tasks(client: Pool, amounts: Sequence[Fraction]) -> int | None:
    """Return how many tasks of `client` are exactly `amounts`; None if no whole number is."""
    demand = demand_of(client)
    counts = {a / d for a, d in zip(amounts, demand, strict=True) if d > 0}
    if len(counts) != 1 or any(a and not d for a, d in zip(amounts, demand, strict=True)):
        return None
    count = counts.pop()
    return count.numerator if count.denominator == 1 else None


def _refusal_of(vector: Vector) -> Fraction:
    """Return the cycles that a filter lasts, from the texts ("refuse 5 s"); 5 by default."""
    for text in (*vector.events, vector.note, vector.source):
        match = _REFUSE.search(text)
        if match:
            return Fraction(match[1])
    return _DEFAULT_REFUSE
