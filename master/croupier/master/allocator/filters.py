"""Filters: what frameworks refused of one agent, and until when.

A filter holds while the refused amount contains what would be offered now, as in Mesos: when
more becomes free on the agent, the framework is offered it again at once. It holds until its time
is over *and* every other framework that could use the agent was offered it too: a round of the
agent ends when a visit finds no framework to deal to. So a framework that declines everything is
offered the agent at most once in a round, however quickly its filters end. A willing framework
that fits is offered the agent after at most as many offers of it as there are other frameworks;
Mesos, without rounds, starves it (MESOS-6111).
"""

from __future__ import annotations

from croupier.master.allocator.node import Leaf
from croupier.model.resources import Resources


class Filter:
    """One refusal, and earlier ones that refuse something that it does not."""

    __slots__ = ("older", "refused", "round", "until")

    def __init__(self, refused: Resources, until: float, in_round: int, older: Filter | None):
        """`refused` is not to be offered before `until`, nor again in round `in_round`."""
        self.refused = refused
        self.until = until
        self.round = in_round
        self.older = older


class Filters:
    """One agent's filters, by leaf. A filter takes less than 200 bytes.

    Attributes:
        round: the number of the present round.
    """

    __slots__ = ("_by_leaf", "_latest", "round")

    def __init__(self) -> None:
        """Start with none."""
        self._by_leaf: dict[Leaf, Filter] = {}
        self._latest: Resources | None = None
        self.round = 0

    def __len__(self) -> int:
        return len(self._by_leaf)

    def add(self, leaf: Leaf, refused: Resources, until: float) -> None:
        """Refuse all that `refused` contains; drop filters that refuse no more than this one."""
        if refused == self._latest and self._latest is not None:
            # Frameworks that decline a whole agent refuse the same: they share one value.
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
        """Return until when `candidate` is refused; None if it may be offered.

        A time in the past means that it is refused for this round only.
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
