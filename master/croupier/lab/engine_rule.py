"""The engine's tree as a rule: the real policies, choosing in a forest.

`Terms` converts the forest to whole amounts, whole weights, roles and their settings. Before each
choice the tree takes over the changes of the forest, as it would from the master: tasks are
allocated and launched, or released; clients are listed or suppressed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from math import lcm

from croupier.lab.solvers.pools import Forest, Pool
from croupier.master.allocator.node import Leaf
from croupier.master.allocator.pending_demand import PendingDemand
from croupier.master.allocator.policies import Policy
from croupier.master.allocator.share import Totals
from croupier.master.allocator.tree import Tree
from croupier.model.demand import Demand
from croupier.model.errors import InvalidRequest
from croupier.model.ids import FrameworkId, Role
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings

_DIRECT = "/."
_ONE = 1000


class Terms:
    """Converts the amounts and weights of a forest to those of the engine.

    Resources are called r0, r1 and so on, in units so small that every amount is whole. Only the
    ratios of siblings' weights matter, so these become whole thousandths.
    """

    def __init__(self, forest: Forest, machines: Iterable[Sequence[Fraction]] = ()) -> None:
        """Choose units that represent all amounts of the forest and the machines."""
        self._forest = forest
        amounts = [forest.totals, *machines]
        for node in forest.root.nodes():
            amounts += [given for given in (node.demand, node.declared, node.guarantee) if given]
            amounts.append(node.used)
        self._parts = [
            lcm(*(a.denominator for a in column)) for column in zip(*amounts, strict=True)
        ]

    def scalars(self, amounts: Iterable[Fraction]) -> dict[str, int]:
        """Return the amounts above 0 by resource."""
        return {f"r{r}": int(a * self._parts[r]) for r, a in enumerate(amounts) if a}

    def resources(self, amounts: Iterable[Fraction]) -> Resources:
        """Return the amounts as `Resources`; raises InvalidRequest if one is too large."""
        return Resources(self.scalars(amounts))

    def settings(self) -> dict[Role, RoleSettings]:
        """Return the settings of all roles; raises InvalidRequest if the engine has no such."""
        found: dict[Role, RoleSettings] = {}
        for node in self._forest.root.nodes():
            found.update(self._of_siblings(node.children))
        return found

    def _of_siblings(self, nodes: Sequence[Pool]) -> Iterator[tuple[Role, RoleSettings]]:
        scale = Fraction(lcm(*(part.denominator for node in nodes for part in _weights(node))))
        if any(node.factors is not None for node in nodes):
            # Directions are scaled by these weights, and then rounded: keep them near 1.
            scale *= _ONE
        for node in nodes:
            if node.path.endswith(_DIRECT):
                if node.factors is not None or node.guarantee is not None:
                    raise InvalidRequest(
                        "a framework has neither weights by resource nor guarantee"
                    )
                scale = _ONE / node.weight
        for node in nodes:
            whole = [part * scale for part in _weights(node)]
            if any(part.denominator != 1 for part in whole):
                raise InvalidRequest("weights have no common measure")
            settings = RoleSettings(
                _ONE if node.factors is not None else int(whole[0]),
                {} if node.factors is None else {f"r{r}": int(w) for r, w in enumerate(whole)},
                self.scalars(node.guarantee or ()),
            )
            settings.check()
            if not node.path.endswith(_DIRECT):
                yield role_of(node), settings

    def clients(self) -> list[Pool]:
        """Return the clients in an order of arrival that sorts siblings by rank."""
        rank = self._forest.rank
        clients = self._forest.root.clients()
        return sorted(clients, key=lambda c: [rank[node] for node in reversed(list(c.path_up()))])


def role_of(node: Pool) -> Role:
    """Return the role of a pool or client; client `p/.` is a framework directly in role `p`."""
    return Role(node.path.removesuffix(_DIRECT))


def _weights(node: Pool) -> Sequence[Fraction]:
    return [node.weight] if node.factors is None else [node.weight * f for f in node.factors]


class EngineRule:
    """A tree with the clients of a forest, each the only framework in the role of its path."""

    def __init__(self, forest: Forest, policy: Policy, *, trusts_declared: bool = False) -> None:
        """Take over the forest as it is.

        With `trusts_declared`, launches are not reported to the tree, so that directions follow the
        declared demand. Raises InvalidRequest if the engine cannot hold its weights or amounts.
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
