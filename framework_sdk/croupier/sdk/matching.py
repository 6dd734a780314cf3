"""Placement of tasks on offers."""

from __future__ import annotations

from collections.abc import Iterable

from croupier.sdk.offer import Offer
from croupier.sdk.task import Task


def fit(offers: Iterable[Offer], tasks: Iterable[Task]) -> list[tuple[Offer, list[Task]]]:
    """Place each task, in order, on the first offer with room for it (first-fit).

    The offer's agent must also have the features that the task needs.

    Returns every offer, in order, with its tasks. An offer that is not needed has none;
    `Framework.accept` then declines it. A task that fits on no offer is in no list. Two offers of
    one agent are not combined. O(offers x tasks).
    """
    packed: list[tuple[Offer, list[Task]]] = [(offer, []) for offer in offers]
    room = [offer.resources for offer, _ in packed]
    for task in tasks:
        needs = task.needs
        for index, (_, chosen) in enumerate(packed):
            if task.resources <= room[index] and needs <= packed[index][0].isolation:
                room[index] -= task.resources
                chosen.append(task)
                break
    return packed
