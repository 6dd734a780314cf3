"""Sums of amounts take linear time, and offers stay within the limits of a message."""

from __future__ import annotations

import pytest

from croupier.model import ranges as rng
from croupier.model.resources import NOTHING, Resources, sum_of


def ports(number: int) -> Resources:
    return Resources({"cpus": 10}, {"ports": ((number, number),)})


def test_a_sum_equals_repeated_addition() -> None:
    amounts = [
        Resources.parse("cpus:1;ports:[1-2,9];zones:{a}"),
        NOTHING,
        Resources.parse("cpus:2;mem:1GB;ports:[3];zones:{b}"),
    ]
    assert sum_of(amounts) == amounts[0] + amounts[2]
    assert sum_of([]) == NOTHING


@pytest.mark.parametrize("amount", ["ports:[5]", "zones:{a}"])
def test_a_sum_holds_no_item_twice(amount: str) -> None:
    one = Resources.parse(amount)
    with pytest.raises(ValueError, match=r"in both|in two"):
        sum_of([one, Resources.parse("cpus:1"), one])


def test_many_ranges_are_sorted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    merged: list[int] = []
    union = rng.union

    def counted(*several: rng.Ranges) -> rng.Ranges:
        merged.append(sum(map(len, several)))
        return union(*several)

    monkeypatch.setattr(rng, "union", counted)
    total = sum_of(ports(2 * number) for number in range(2_000))
    assert len(total.ranges["ports"]) == 2_000
    assert merged == [2_000]


def test_an_offer_has_only_as_many_ranges_as_a_message_may() -> None:
    free = sum_of(ports(2 * number) for number in range(2_000))
    offered = free.within_bounds()
    assert len(offered.ranges["ports"]) == rng.MAX_RANGES
    assert offered <= free
    assert len((free - offered).ranges["ports"]) == 1_000
    assert ports(1).within_bounds() == ports(1)
