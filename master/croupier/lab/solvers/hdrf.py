"""The protocol of rules, which choose the next client of a forest; and H-DRF, by its definition.

Shares are exact; `Forest.rank` breaks ties.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Protocol

from croupier.lab.solvers.pools import Forest, Pool

Eligible = Callable[[Pool], bool]
Key = tuple[int, Fraction]


class Rule(Protocol):
    """A policy that chooses among the clients of a forest."""

    def pick(self, forest: Forest, is_eligible: Eligible) -> Pool | None:
        """Return the eligible client to serve next; None if no client is eligible."""
        ...


class HDRF:
    """Hierarchical DRF of Bhattacharya et al., SoCC 2013, with weights.

    A pool's use is the sum of its children's, after the use of those that are not blocked is scaled
    down to the least share (over weight) among them. A client that needs a resource without free
    amount is blocked: it is not scaled and not in the minimum. Shares are of the other resources.
    """

    def __init__(self, free: Callable[[], Sequence[Fraction]]) -> None:
        """`free` returns the free amount of each resource."""
        self._free = free

    def pick(self, forest: Forest, is_eligible: Eligible) -> Pool | None:
        """See `Rule`."""
        is_open = [left > 0 for left in self._free()]

        def key(node: Pool) -> Key | None:
            if not any(is_eligible(client) for client in node.clients()):
                return None
            use, is_blocked = self._rescaled(forest, node, is_open)
            return None if is_blocked else (1, _largest(use, is_open) / node.weight)

        return descend(forest, key)

    def _rescaled(
        self, forest: Forest, node: Pool, is_open: Sequence[bool]
    ) -> tuple[list[Fraction], bool]:
        """Return the rescaled shares of a node, and whether it is blocked."""
        if node.demand is not None:
            needs = zip(node.demand, is_open, strict=True)
            is_blocked = not node.wants or any(need > 0 and not o for need, o in needs)
            return forest.shares(node.used), is_blocked
        children = [(child, *self._rescaled(forest, child, is_open)) for child in node.children]
        least = min(
            (
                _largest(use, is_open) / child.weight
                for child, use, blocked in children
                if not blocked
            ),
            default=Fraction(0),
        )
        total = [Fraction(0)] * len(is_open)
        for child, use, blocked in children:
            share = _largest(use, is_open)
            scale = least * child.weight / share if share and not blocked else Fraction(1)
            total = [t + scale * u for t, u in zip(total, use, strict=True)]
        return total, all(blocked for _, _, blocked in children)


def descend(forest: Forest, key: Callable[[Pool], Key | None]) -> Pool | None:
    """Go down from the root by the least key until a client; None if no key is left."""
    node = forest.root
    while not node.is_client:
        keys = [(key(child), forest.rank[child], child) for child in node.children]
        ranked = [(found, rank, child) for found, rank, child in keys if found is not None]
        if not ranked:
            return None
        node = min(ranked, key=lambda item: item[:2])[2]
    return node


def _largest(shares: Sequence[Fraction], is_open: Sequence[bool]) -> Fraction:
    return max((s for s, o in zip(shares, is_open, strict=True) if o), default=Fraction(0))
