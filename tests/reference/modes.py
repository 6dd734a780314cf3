"""Run golden vectors by definitions that share no code with the engine.

`REFERENCES` stands beside `croupier.lab.vectors.check.RUNNERS`: every mode that the engine answers
has a definition here, so that both must give what the file expects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Final

from croupier.lab.solvers.filling import HDRF, Filling, Key, Machines, Rule
from croupier.lab.solvers.pools import Forest, Pool
from croupier.lab.vectors.check import RUNNERS, Runners
from croupier.lab.vectors.facts import Fact, Got
from croupier.lab.vectors.fifo_mode import fifo_outcome, in_order, placement_of
from croupier.lab.vectors.forests import REFERENCE, check_policy, filling_of, forest_of
from croupier.lab.vectors.modes import (
    Runs,
    counts_of,
    fill,
    hint_facts,
    outcome_of,
    play,
    slots_of,
)
from croupier.lab.vectors.offers_mode import (
    NAIVE,
    RECOMMENDED,
    check_offers,
    cluster_of,
    cycles_of,
    refusal_of,
)
from croupier.lab.vectors.outcome import TaskOutcome, resource_index, user_of
from croupier.lab.vectors.preemption_mode import (
    PreemptionRun,
    check_preemption,
    preemption_facts,
    split_clients,
)
from croupier.lab.vectors.static_modes import loaded_forest
from croupier.lab.vectors.vector import Unreadable, Vector, shortened
from tests.reference.fifo import serve_in_order
from tests.reference.offers import OfferLoop
from tests.reference.preemption import Preemption
from tests.reference.rules import (
    Collapsed,
    MinSatisfaction,
    MinSatisfactionByUse,
    Naive,
    share_of,
    sum_of_shares,
)
from tests.reference.slots import fill_slots


def rule_of(vector: Vector, policy: str, filling: Filling) -> Rule:
    """Return the rule of a policy, by its definition."""
    name, _, argument = policy.partition(":")
    check_policy(vector, policy)
    if name == "h-drf":
        return HDRF(filling.machines.left)
    if name == "asset":
        return Naive(sum_of_shares)
    if name == "single":
        return Naive(share_of(resource_index(vector, argument)))
    rules: dict[str, Callable[[], Rule]] = {
        "flat": Collapsed,
        "min-sat-weights": MinSatisfaction,
        "min-sat-entitlement": MinSatisfactionByUse,
    }
    return rules.get(name, Naive)()


def run_discrete(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:
    filling = filling_of(vector)
    fill(filling, rule_of(vector, policy, filling), policy)
    yield REFERENCE, outcome_of(vector, filling, others)


def run_events(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:
    filling = filling_of(vector)
    facts = play(vector, filling, rule_of(vector, policy, filling), policy)
    yield REFERENCE, outcome_of(vector, filling, others, facts)


def run_hints(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:
    trusting, by_use = filling_of(vector), filling_of(vector)
    trusting.fill(MinSatisfactionByUse(trusts_declared=True))
    by_use.fill(rule_of(vector, policy, by_use))
    yield REFERENCE, outcome_of(vector, by_use, others, hint_facts(trusting, by_use))


def run_slots(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:
    forest = forest_of(vector)
    given = [client.path for client in fill_slots(forest, slots_of(vector, policy))]
    yield REFERENCE, TaskOutcome(vector, counts_of(forest), others, given).facts


def run_fifo(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:
    placement = placement_of(vector, policy)
    clients = in_order(forest_of(vector))
    users = [user_of(vector, client.path) for client in clients]
    counts = serve_in_order(Machines(vector.machines()), users, placement)
    yield REFERENCE, fifo_outcome(vector, clients, counts, others)


def run_preemption(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:
    check_preemption(vector, policy)
    yield REFERENCE, preemption_facts(lambda tolerance: _preempted(vector, tolerance))


def _preempted(vector: Vector, tolerance: Fraction) -> PreemptionRun:
    """Start the holders' tasks, one each moment; then let all others come."""
    forest = forest_of(vector)
    run = Preemption(forest, Machines(vector.machines()), tolerance)
    holders, asking = split_clients(vector, forest)
    if vector.initial:
        for path, count in vector.initial.items():
            run.start(forest.by_path[path], count)
    else:
        holders[0].is_paused = False
        run.serve()
    for client in asking:
        client.is_paused = False
    run.settle()
    return forest, [task.started for task in run.killed]


def run_offers(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:
    check_offers(vector, policy)

    def naive(_: object, client: str) -> Got:
        vector.check_client(client)
        return _first_offer(vector, client, is_fair=False)

    def recommended(_: object, client: str) -> Got:
        vector.check_client(client)
        return _first_offer(vector, client, is_fair=True)

    facts: list[Fact] = [(NAIVE, naive), (RECOMMENDED, recommended)]
    yield REFERENCE, facts


def _first_offer(vector: Vector, accepting: str, *, is_fair: bool) -> int | None:
    forest, machines = cluster_of(vector, accepting)
    loop = OfferLoop(forest, machines, is_fair=is_fair, refuse=refusal_of(vector))
    client = forest.by_path[accepting]
    loop.run(client, cycles_of(vector))
    return loop.first_offer.get(client)


def run_entitlement(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:
    forest = loaded_forest(vector)
    if policy in ("entitlement", "min-sat-entitlement"):
        found = MinSatisfactionByUse(resolution=None).entitlements(forest)
    elif policy == "min-sat-weights":
        found = MinSatisfaction().entitlements(forest)
    elif policy == "flat":
        found = Collapsed().weights(forest)
    else:
        raise Unreadable(f"policy {shortened(policy)} has no entitlements")
    by_path: dict[str, Got] = {
        path: found.get(node, Fraction(0)) for path, node in forest.by_path.items() if path
    }
    yield REFERENCE, [("entitlement", lambda _: by_path)]


def run_order(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:
    if policy in ("flat", "h-drf"):
        raise Unreadable(f"mode order does not know policy {policy}")
    forest = loaded_forest(vector)
    rule = rule_of(vector, policy, Filling(forest, Machines([])))
    assert isinstance(rule, Naive)
    found = [client.path for client in _ordered(forest, rule)]
    yield REFERENCE, [("order", lambda _: list(found))]


def _ordered(forest: Forest, rule: Naive) -> list[Pool]:
    def below(node: Pool) -> list[Pool]:
        if node.is_client:
            return [node]
        keys = {child: rule.key(forest, child, lambda c: c.wants) for child in node.children}
        ranked = sorted(keys, key=_by_key(keys, forest))
        return [client for child in ranked for client in below(child)]

    return below(forest.root)


def _by_key(keys: dict[Pool, Key | None], forest: Forest) -> Callable[[Pool], tuple[Key, int]]:
    last: Key = (2, Fraction(0))
    return lambda node: (keys[node] or last, forest.rank[node])


REFERENCES: Final[Runners] = {
    **RUNNERS,
    "schedule": run_discrete,
    "discrete": run_discrete,
    "slots": run_slots,
    "fifo": run_fifo,
    "entitlement": run_entitlement,
    "events": run_events,
    "preemption": run_preemption,
    "order": run_order,
    "offers": run_offers,
    "hints": run_hints,
}
