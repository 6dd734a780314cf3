"""Putting tasks on offers."""

from __future__ import annotations

from collections.abc import Iterable

from croupier.sdk.offer import Offer
from croupier.sdk.task import Task


def fit(offers: Iterable[Offer], tasks: Iterable[Task]) -> list[tuple[Offer, list[Task]]]:
    """First-fit: give each task, in order, to the first offer that still has room for it.

    Every offer is in the answer, in order, with the tasks for it: none for an offer that is
    not needed, which `Framework.accept` then declines. A task that fits nowhere is in
    no list. Each offer is taken for itself, even if two are of the same agent.
    O(offers x tasks).
    """
    packed: list[tuple[Offer, list[Task]]] = [(offer, []) for offer in offers]
    room = [offer.resources for offer, _ in packed]
    for task in tasks:
        for index, (_, chosen) in enumerate(packed):
            if task.resources <= room[index]:
                room[index] -= task.resources
                chosen.append(task)
                break
    return packed
