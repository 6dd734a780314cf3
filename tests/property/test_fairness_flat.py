"""Properties of the DRF paper on random clusters; wrong policies fail them.

The end of the run prints how many checks met their condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from croupier.master.allocator.node import Level, Node
from croupier.master.allocator.policies import Asset, Drf, Fifo, Key, SingleResource, Slots
from tests.harness import fairness
from tests.harness.effort import portion
from tests.harness.fairness import Deal, by_policy, stopping_after
from tests.harness.guards import Checked, assert_guarded, violations


class Unweighted(Drf):
    """Dominant shares without weights."""

    def key(self, node: Node, level: Level) -> Key:
        weight, node.weight = node.weight, 1
        try:
            return super().key(node, level)
        finally:
            node.weight = weight


class Renormalised(Drf):
    """Weights that depend on a node's place among its siblings."""

    def key(self, node: Node, level: Level) -> Key:
        parent = node.parent
        assert parent is not None
        siblings = list(parent.below())
        weight, node.weight = node.weight, 1 + siblings.index(node) ** 2
        try:
            return super().key(node, level)
        finally:
            node.weight = weight


Property = Callable[[Deal, int], Iterator[Checked]]

DRF = by_policy(lambda: None)

# Property, clusters, and the least number of guarded checks.
PROPERTIES: dict[str, tuple[Property, int, int]] = {
    "Pareto efficiency": (fairness.pareto, 400, 400),
    "sharing incentive": (fairness.sharing_incentive, 400, 700),
    "sharing incentive on machines": (fairness.sharing_on_machines, 400, 200),
    "envy-freeness up to one": (fairness.envy_up_to_one, 400, 1000),
    "envy-freeness on machines": (fairness.envy_on_machines, 400, 1700),
    "bottleneck fairness": (fairness.bottleneck, 400, 1300),
    "single resource fairness": (fairness.single_resource, 350, 1000),
    "Theorem 7": (fairness.theorem_7, 400, 2000),
    "population monotonicity": (fairness.population, 400, 200),
    "strategy-proofness": (fairness.strategy, 200, 300),
}
SOME = 200


@pytest.mark.parametrize("name", PROPERTIES)
def test_property(name: str) -> None:
    check, clusters, least = PROPERTIES[name]
    assert_guarded(name, check(DRF, portion(clusters)), portion(least))


MUTANTS: dict[str, tuple[Deal, tuple[str, ...]]] = {
    "first come, first served": (
        by_policy(Fifo),
        ("sharing incentive", "envy-freeness up to one", "bottleneck fairness", "Theorem 7"),
    ),
    "asset fairness": (by_policy(Asset), ("sharing incentive", "bottleneck fairness", "Theorem 7")),
    "fair in counts": (by_policy(Slots), ("strategy-proofness",)),
    "fair in cpus alone": (by_policy(SingleResource), ("sharing incentive", "Theorem 7")),
    "weights ignored": (by_policy(Unweighted), ("sharing incentive", "envy-freeness on machines")),
    "stops after five tasks": (stopping_after(DRF, 5), ("Pareto efficiency",)),
    "weights by place": (by_policy(Renormalised), ("population monotonicity",)),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_policy_is_detected(mutant: str) -> None:
    deal, properties = MUTANTS[mutant]
    for name in properties:
        check, _, _ = PROPERTIES[name]
        assert violations(check(deal, SOME)) > 0, f"{name} does not detect the wrong policy"
