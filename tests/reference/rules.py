"""Reference rules: each policy from its definition, which looks at the whole tree.

A rule picks the least of the eligible clients. Shares are exact; `Forest.rank` breaks ties. The
flat definition is in the DRF paper; those of min-satisfaction are below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from croupier.lab.solvers.filling import Eligible, Key, descend
from croupier.lab.solvers.pools import Forest, Pool

Measure = Callable[[Forest, Pool], Fraction]

_RESOLUTION = 1 << 16


class Naive:
    """Each pool is judged by its own share over its weight.

    On a flat tree this is the paper's algorithm. On a deep one, a pool with one rich child starves
    its other children.
    """

    def __init__(self, measure: Measure = Forest.dominant) -> None:
        """Judge by `measure`."""
        self._measure = measure

    def pick(self, forest: Forest, is_eligible: Eligible) -> Pool | None:
        """See `Rule`."""
        return descend(forest, lambda node: self.key(forest, node, is_eligible))

    def key(self, forest: Forest, node: Pool, is_eligible: Eligible) -> Key | None:
        """Return the key of a node among its siblings; None if no client below it is eligible."""
        if not any(is_eligible(client) for client in node.clients()):
            return None
        return weighed(self.own(forest, node), node)

    def own(self, forest: Forest, node: Pool) -> Key:
        """Return the need of a node by its own use: first its guarantee, then its share."""
        reached = met_guarantee(node)
        return (1, self._measure(forest, node)) if reached is None else (0, reached)


class MinSatisfaction(Naive):
    """A pool is as needy as its neediest client that can be served.

    `key(c)` is `mu(c)` over the weight of c; `mu` of a client is its own share, and of a pool
    the lesser of its own share and of its least child's key times the pool's scale S: how much
    the pool's share grows when the keys of all live children grow together. A pool's guarantee
    comes first while it is not met.
    """

    def key(self, forest: Forest, node: Pool, is_eligible: Eligible) -> Key | None:
        """See `Naive.key`."""
        need = self._mu(forest, node, is_eligible)
        return None if need is None else weighed(need, node)

    def _mu(self, forest: Forest, node: Pool, is_eligible: Eligible) -> Key | None:
        if node.is_client:
            return self.own(forest, node) if is_eligible(node) else None
        keys = [self.key(forest, child, is_eligible) for child in node.children]
        present = [key for key in keys if key is not None]
        if not present:
            return None
        tier, least = min(present)
        lifted = (tier, least if tier == 0 else least * self.scale(forest, node))
        return min(self.own(forest, node), lifted)

    def scale(self, forest: Forest, node: Pool) -> Fraction:
        """Return S: the sum of the weights of live children, as if all used the same resource."""
        return sum((child.weight for child in node.children if child.is_alive), Fraction(0))

    def entitlements(self, forest: Forest) -> dict[Pool, Fraction]:
        """Return the entitlement of each live node: its part of its parent's."""
        found = {forest.root: Fraction(1)}
        for node in forest.root.nodes():
            scale = self.scale(forest, node) if node in found else 0
            if scale:
                for child in node.children:
                    if child.is_alive:
                        found[child] = found[node] * child.weight / scale
        return found


class MinSatisfactionByUse(MinSatisfaction):
    """Min-satisfaction with S from the use of the children.

    The direction of a node is what it uses of each resource, scaled so that its share is 1.
    Children of different directions fit beside each other, so S is the largest component of
    the weighted sum of directions, not the sum of weights.
    """

    def __init__(
        self, *, resolution: int | None = _RESOLUTION, trusts_declared: bool = False
    ) -> None:
        """Round directions up to 1 / `resolution`; take them from what is declared, or used."""
        super().__init__()
        self._resolution = resolution
        self._trusts_declared = trusts_declared

    def scale(self, forest: Forest, node: Pool) -> Fraction:
        """Return S: how fast the node's own share grows with its children's keys."""
        factors = node.factors or [Fraction(1)] * len(forest.totals)
        sums = zip(self._sum_of_directions(forest, node), factors, strict=True)
        return max((amount / factor for amount, factor in sums), default=Fraction(0))

    def direction(self, forest: Forest, node: Pool) -> list[Fraction]:
        """Return the node's use of each resource when its share is 1."""
        shares = (
            forest.shares(self._typical(node))
            if node.is_client
            else self._sum_of_directions(forest, node)
        )
        factors = node.factors or [Fraction(1)] * len(shares)
        largest = max((s / f for s, f in zip(shares, factors, strict=True)), default=Fraction(0))
        if not largest:
            return [Fraction(1)] * len(shares)
        return [self._rounded(share / largest) for share in shares]

    def _typical(self, client: Pool) -> Sequence[Fraction]:
        assert client.demand is not None
        declared = client.demand if client.declared is None else client.declared
        return client.used if any(client.used) and not self._trusts_declared else declared

    def _sum_of_directions(self, forest: Forest, node: Pool) -> list[Fraction]:
        sums = [Fraction(0)] * len(forest.totals)
        for child in node.children:
            if child.is_alive:
                direction = self.direction(forest, child)
                sums = [s + child.weight * d for s, d in zip(sums, direction, strict=True)]
        return sums

    def _rounded(self, part: Fraction) -> Fraction:
        if self._resolution is None:
            return part
        return Fraction(-(-part.numerator * self._resolution // part.denominator), self._resolution)


class Collapsed:
    """The flattened tree: a client's weight is the product of the relative weights on its path."""

    def pick(self, forest: Forest, is_eligible: Eligible) -> Pool | None:
        """See `Rule`."""
        weights = self.weights(forest)
        keys = {
            client: (forest.dominant(client) / weights[client], forest.rank[client])
            for client in forest.root.clients()
            if is_eligible(client)
        }
        return min(keys, key=keys.__getitem__, default=None)

    def weights(self, forest: Forest) -> dict[Pool, Fraction]:
        """Return each node's part of the whole by weights alone."""
        parts = {forest.root: Fraction(1)}
        for node in forest.root.nodes():
            total = sum((child.weight for child in node.children), Fraction(0))
            parts.update({child: parts[node] * child.weight / total for child in node.children})
        return parts


def weighed(need: Key, node: Pool) -> Key:
    """Return a need as siblings compare it: shares over weights, guarantees unchanged."""
    tier, amount = need
    return (tier, amount) if tier == 0 else (tier, amount / node.weight)


def met_guarantee(node: Pool) -> Fraction | None:
    """Return the reached part of a node's guarantee; None if there is none, or it is reached.

    None, too, for a node that holds something, but nothing of its guaranteed resources.
    """
    parts = [u / g for u, g in zip(node.used, node.guarantee or (), strict=False) if g > 0]
    reached = max(parts, default=Fraction(1))
    if not reached and any(node.used):
        return None
    return reached if reached < 1 else None
