"""Filters: the resources of one agent that frameworks declined, and for how long.

A filter applies while the declined amount contains the resources that would be offered now, as in
Mesos: when more becomes free on the agent, the framework is offered it again at once. A filter
lasts until its time is over *and* the agent's round has ended. A round ends when a visit finds no
framework to deal to: each one that could use the agent was offered it. So a framework that declines
everything is offered the agent at most once in a round, however short its filters. Among n other
frameworks, a framework that accepts is offered the agent after at most n offers of it; Mesos,
without rounds, starves it (MESOS-6111).
"""

from __future__ import annotations

from croupier.master.allocator.node import Leaf
from croupier.model.resources import Resources


class Filter:
    """A filter of one framework, and its older filters that cover something else or end later."""

    __slots__ = ("older", "refused", "round", "until")

    def __init__(self, refused: Resources, until: float, in_round: int, older: Filter | None):
        """Exclude `refused` until `until`, and for the rest of round `in_round`."""
        self.refused = refused
        self.until = until
        self.round = in_round
        self.older = older


class Filters:
    """One agent's filters, by leaf, each under 200 bytes; `round` numbers the present round."""

    __slots__ = ("_by_leaf", "_latest", "round")

    def __init__(self) -> None:
        self._by_leaf: dict[Leaf, Filter] = {}
        self._latest: Resources | None = None
        self.round = 0

    def __len__(self) -> int:
        return len(self._by_leaf)

    def add(self, leaf: Leaf, refused: Resources, until: float) -> None:
        """Add a filter of all that `refused` contains; drop older filters that it covers."""
        if refused == self._latest and self._latest is not None:
            # Frameworks that decline a whole agent share one value, to save memory.
            refused = self._latest
        self._latest = refused
        if leaf not in self._by_leaf:
            leaf.filters += 1
        kept = self._by_leaf.get(leaf)
        older: Filter | None = None
        while kept is not None:
            if kept.until > until or not kept.refused <= refused:
                older = Filter(kept.refused, kept.until, kept.round, older)
            kept = kept.older
        self._by_leaf[leaf] = Filter(refused, until, self.round, older)

    def until(self, leaf: Leaf, candidate: Resources, now: float) -> float | None:
        """Return the time until which `candidate` is excluded; None if it may be offered.

        A time in the past means that it is excluded for this round only.
        """
        each = self._by_leaf.get(leaf)
        latest: float | None = None
        younger: Filter | None = None
        while each is not None:
            if each.until > now or each.round == self.round:
                if candidate <= each.refused and (latest is None or each.until > latest):
                    latest = each.until
                younger = each
            elif younger is not None:
                younger.older = each.older
            elif each.older is not None:
                self._by_leaf[leaf] = each.older
            else:
                self.forget(leaf)
            each = each.older
        return latest

    def forget(self, leaf: Leaf) -> None:
        """Drop the leaf's filters."""
        if self._by_leaf.pop(leaf, None) is not None:
            leaf.filters -= 1

    def clear(self) -> None:
        """Drop all filters."""
        for leaf in list(self._by_leaf):
            self.forget(leaf)
