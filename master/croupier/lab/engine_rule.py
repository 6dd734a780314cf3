"""The engine's tree as a rule: the real policies, choosing in a forest.

Before each choice the tree takes over the changes of the forest, as it would from the master:
tasks are allocated and launched, or released; clients are listed or suppressed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from croupier.lab.engine_terms import Terms, role_of
from croupier.lab.solvers.pools import Forest, Pool
from croupier.master.allocator.node import Leaf
from croupier.master.allocator.pending_demand import PendingDemand
from croupier.master.allocator.policies import Policy
from croupier.master.allocator.share import Totals
from croupier.master.allocator.tree import Tree
from croupier.model.demand import Demand
from croupier.model.ids import FrameworkId


class EngineRule:
    """A tree with the clients of a forest, each the only framework in the role of its path.

    Attributes:
        tree: the engine's own.
    """

    def __init__(self, forest: Forest, policy: Policy, *, trusts_declared: bool = False) -> None:
        """Take over the forest as it is.

        With `trusts_declared`, launches are not reported to the tree, so that directions follow the
        declared demand.

        Raises:
            InvalidRequest: if the engine cannot hold its weights or amounts.
        """
        self._forest = forest
        self._trusts_declared = trusts_declared
        self._terms = terms = Terms(forest)
        totals = Totals()
        totals.add(terms.scalars(forest.totals))
        self.tree = Tree(totals, policy, terms.settings())
        self._leaves: dict[Pool, Leaf] = {}
        self._clients: dict[Leaf, Pool] = {}
        self._applied: dict[Pool, Sequence[Fraction]] = {}
        for number, client in enumerate(terms.clients()):
            leaf = self.tree.add(FrameworkId(f"f{number}"), role_of(client))
            leaf.is_connected = True
            leaf.is_suppressed = True
            unit = terms.resources(client.declared or client.demand or ())
            self.tree.set_pending(leaf, [PendingDemand(Demand(unit))])
            self._leaves[client], self._clients[leaf] = leaf, client
            self._applied[client] = [Fraction(0)] * len(forest.totals)

    def pick(self, forest: Forest, is_eligible: Callable[[Pool], bool]) -> Pool | None:
        """See `Rule`."""
        assert forest is self._forest
        self.catch_up()
        leaf = self.tree.neediest(lambda leaf: is_eligible(self._clients[leaf]))
        return None if leaf is None else self._clients[leaf]

    def entitlements(self) -> dict[str, Fraction]:
        """Return the entitlement of every node that is alive, by path."""
        self.catch_up()
        found = self.tree.entitlements()
        by_role = {
            str(role): found[pool] for role, pool in self.tree.roles.items() if pool in found
        }
        direct = {c.path: found[leaf] for c, leaf in self._leaves.items() if leaf in found}
        return direct | by_role

    def order(self) -> list[Pool]:
        """Return the clients that want tasks, role by role, each role by its place."""
        self.catch_up()
        return [self._clients[leaf] for leaf in self.tree.in_order()]

    def catch_up(self) -> None:
        """Apply the changes of the forest to the tree."""
        self.tree.refresh()
        for client, leaf in self._leaves.items():
            if leaf.is_suppressed == client.wants:
                leaf.is_suppressed = not client.wants
                self.tree.relist(leaf)
            if client.used != self._applied[client]:
                self._apply_use(client, leaf)
        self.tree.refresh()

    def _apply_use(self, client: Pool, leaf: Leaf) -> None:
        change = [new - old for new, old in zip(client.used, self._applied[client], strict=True)]
        self._applied[client] = list(client.used)
        more = self._terms.scalars([max(c, Fraction(0)) for c in change])
        less = self._terms.scalars([max(-c, Fraction(0)) for c in change])
        if more:
            self.tree.deal(leaf, more)
            if not self._trusts_declared:
                self.tree.launch(leaf, more)
        if less:
            self.tree.charge(leaf, less, -1)
