"""A forest in the engine's terms: whole amounts, whole weights, roles and their settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from math import lcm

from croupier.lab.solvers.pools import Forest, Pool
from croupier.model.errors import InvalidRequest
from croupier.model.ids import Role
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
        """Return the amounts as `Resources`.

        Raises:
            InvalidRequest: if an amount is too large for it.
        """
        return Resources(self.scalars(amounts))

    def settings(self) -> dict[Role, RoleSettings]:
        """Return the settings of all roles.

        Raises:
            InvalidRequest: if weights have no common measure, or the engine has no such setting.
        """
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
