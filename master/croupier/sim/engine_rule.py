"""The engine's tree as a rule: the real policies, choosing in a reference's forest.

Before each choice the tree is told what changed in the forest, as the master would tell it:
tasks are dealt and launched, or released; clients are listed or suppressed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from math import lcm

from croupier.master.allocator.node import Leaf
from croupier.master.allocator.policies import Policy
from croupier.master.allocator.share import Totals
from croupier.master.allocator.tree import Tree
from croupier.master.allocator.want import Want
from croupier.model.demand import Demand
from croupier.model.errors import InvalidRequest
from croupier.model.ids import FrameworkId, Role
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from croupier.sim.solvers.pools import Forest, Pool

_DIRECT = "/."
_ONE = 1000


class EngineRule:
    """A tree with the clients of a forest, each a framework alone in the role of its path.

    A client `p/.` is a framework right in role `p`.
    """

    def __init__(self, forest: Forest, policy: Policy) -> None:
        """Take over the forest as it is.

        Raises:
            InvalidRequest: if the engine cannot hold its weights or amounts.
        """
        self._forest = forest
        self._units = _units(forest)
        totals = Totals()
        totals.add(self._amounts(forest.totals))
        self.tree = Tree(totals, policy, dict(self._settings()))
        self._leaves: dict[Pool, Leaf] = {}
        self._clients: dict[Leaf, Pool] = {}
        self._told: dict[Pool, Sequence[Fraction]] = {}
        for number, client in enumerate(self._in_order_of_ties()):
            leaf = self.tree.add(FrameworkId(f"f{number}"), _role(client))
            leaf.is_connected = True
            leaf.is_suppressed = True
            self.tree.set_wants(leaf, [Want(Demand(self._unit(client)))])
            self._leaves[client], self._clients[leaf] = leaf, client
            self._told[client] = [Fraction(0)] * len(forest.totals)

    def pick(self, forest: Forest, is_eligible: Callable[[Pool], bool]) -> Pool | None:
        """See `Rule`."""
        assert forest is self._forest
        self.catch_up()
        leaf = self.tree.neediest(lambda leaf: is_eligible(self._clients[leaf]))
        return None if leaf is None else self._clients[leaf]

    def entitlements(self) -> dict[str, Fraction]:
        """By the path of the forest, of every node that is alive."""
        self.catch_up()
        found = self.tree.entitlements()
        by_role = {
            str(role): found[pool] for role, pool in self.tree.roles.items() if pool in found
        }
        direct = {c.path: found[leaf] for c, leaf in self._leaves.items() if leaf in found}
        return direct | by_role

    def order(self) -> list[Pool]:
        """Clients that want something, role by role, each role by its place."""
        self.catch_up()
        return [self._clients[leaf] for leaf in self.tree.in_order()]

    def catch_up(self) -> None:
        """Tell the tree what changed in the forest since the last time."""
        self.tree.refresh()
        for client, leaf in self._leaves.items():
            if leaf.is_suppressed == client.wants:
                leaf.is_suppressed = not client.wants
                self.tree.relist(leaf)
            if client.used != self._told[client]:
                self._tell_use(client, leaf)
        self.tree.refresh()

    def _tell_use(self, client: Pool, leaf: Leaf) -> None:
        change = [new - old for new, old in zip(client.used, self._told[client], strict=True)]
        self._told[client] = list(client.used)
        more = self._amounts([max(c, Fraction(0)) for c in change])
        less = self._amounts([max(-c, Fraction(0)) for c in change])
        if more:
            self.tree.deal(leaf, more)
            self.tree.launch(leaf, more)
        if less:
            self.tree.charge(leaf, less, -1)

    def _amounts(self, amounts: Iterable[Fraction]) -> dict[str, int]:
        return {f"r{r}": int(a * self._units[r]) for r, a in enumerate(amounts) if a}

    def _unit(self, client: Pool) -> Resources:
        return Resources(self._amounts(client.declared or client.demand or ()))

    def _settings(self) -> Iterable[tuple[Role, RoleSettings]]:
        for node in self._forest.root.nodes():
            if node.children:
                yield from self._settings_of_siblings(node.children)

    def _settings_of_siblings(self, nodes: Sequence[Pool]) -> Iterable[tuple[Role, RoleSettings]]:
        """Only the ratios of siblings' weights matter: they are made whole thousandths."""
        scale = Fraction(lcm(*(part.denominator for node in nodes for part in _weights(node))))
        for node in nodes:
            if node.path.endswith(_DIRECT):
                scale = _ONE / node.weight
        for node in nodes:
            whole = [part * scale for part in _weights(node)]
            if node.path.endswith(_DIRECT):
                if node.factors is not None or node.guarantee is not None:
                    raise InvalidRequest(
                        "a framework has neither weights by resource nor guarantee"
                    )
                continue
            if any(part.denominator != 1 for part in whole):
                raise InvalidRequest("weights have no common measure")
            settings = RoleSettings(
                _ONE if node.factors is not None else int(whole[0]),
                {} if node.factors is None else {f"r{r}": int(w) for r, w in enumerate(whole)},
                self._amounts(node.guarantee or ()),
            )
            settings.check()
            yield _role(node), settings

    def _in_order_of_ties(self) -> list[Pool]:
        """Clients so that siblings come in the order of their rank."""
        rank = self._forest.rank
        clients = list(self._forest.root.clients())
        return sorted(clients, key=lambda c: [rank[node] for node in reversed(list(c.path_up()))])


def _role(node: Pool) -> Role:
    return Role(node.path.removesuffix(_DIRECT))


def _weights(node: Pool) -> Sequence[Fraction]:
    return [node.weight] if node.factors is None else [node.weight * f for f in node.factors]


def _units(forest: Forest) -> list[int]:
    """By resource: the number of parts of its unit in which all amounts are whole."""
    amounts = [forest.totals, forest.root.used]
    for node in forest.root.nodes():
        amounts += [given for given in (node.demand, node.declared, node.guarantee) if given]
        amounts.append(node.used)
    return [
        lcm(*(amount.denominator for amount in column)) for column in zip(*amounts, strict=True)
    ]
