"""Slots: a machine has a number of slots, and a task takes one, whatever it needs.

The real resources of machines are ignored, which is the flaw of slots.
"""

from __future__ import annotations

from fractions import Fraction

from croupier.lab.solvers.pools import Forest, Pool


def fill_slots(forest: Forest, slots: int) -> list[Pool]:
    """Give each slot to the client with the fewest for its weight; return the clients in order."""
    given: list[Pool] = []
    clients = list(forest.root.clients())
    for _ in range(slots):
        waiting = [client for client in clients if client.wants]
        if not waiting:
            break
        least = min(waiting, key=lambda c: (Fraction(c.tasks) / c.weight, forest.rank[c]))
        forest.start(least)
        given.append(least)
    return given
