"""Amounts of many resources: parsed, formatted, added and subtracted exactly."""

from __future__ import annotations

import pytest

from croupier.model import ranges as rng
from croupier.model.errors import InvalidRequest
from croupier.model.resources import MAX_NAMES, NOTHING, Resources, sum_of, total_of
from croupier.model.scalar import MAX_MILLI

R = Resources.parse


def test_the_text_form_is_read_back() -> None:
    text = "cpus:1.5;mem:8GB;disk:10MB;gpus:1;licences:2;ports:[31000-32000];zones:{a,b}"
    assert str(R(text)) == text
    assert R(str(R(text))) == R(text)
    assert repr(R("cpus:1")) == "Resources.parse('cpus:1')"


def test_order_and_space_do_not_matter() -> None:
    assert R(" mem : 1GB ; cpus : 1 ;; ") == R("cpus:1;mem:1024")


def test_equal_amounts_are_equal_values() -> None:
    assert R("cpus:0") == NOTHING
    assert not R("cpus:0;ports:[];zones:{}")
    assert hash(R("cpus:1;mem:1")) == hash(R("mem:1;cpus:1.000"))
    assert R("cpus:1") != R("cpus:2")
    assert R("cpus:1") != "cpus:1"


def test_zero_amounts_have_an_empty_text_form() -> None:
    assert str(NOTHING) == ""
    assert R("") == NOTHING


@pytest.mark.parametrize(
    "text",
    [
        "cpus", "cpus:", ":1", "cpus=1", "cpus:1:2", "cpus:-1", "cpus:nan", "cpus:0.0001",
        "cpus:1;cpus:1", "cpus:1GB", "mem:1XB", "ports:[1-3,3]", "ports:[1-3", "zones:{a,a}",
        "zones:{a", "zones:{a b}", "1cpus:1", "c pus:1", "cp\u00fcs:1", "x" * 64 + ":1",
        "../x:1", "cpus:[1-2];cpus:{a}", "zones:{a;b}", "cpus:{a}}",
    ],
)  # fmt: skip
def test_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        R(text)


def test_a_name_has_one_kind() -> None:
    with pytest.raises(InvalidRequest, match="ports is given as two kinds"):
        Resources({"ports": 1000}, {"ports": ((1, 2),)})


def test_the_number_of_names_is_bounded() -> None:
    with pytest.raises(InvalidRequest, match="more than 64"):
        Resources({f"r{i}": 1 for i in range(MAX_NAMES + 1)})


def test_the_constructor_checks_amounts() -> None:
    with pytest.raises(InvalidRequest, match="negative"):
        Resources({"cpus": -1})
    with pytest.raises(InvalidRequest, match="is too large"):
        Resources({"cpus": MAX_MILLI + 1})
    with pytest.raises(InvalidRequest, match="overlap"):
        Resources(ranges={"ports": ((1, 3), (2, 4))})


def test_amounts_of_sets_are_checked_by_the_constructor_too() -> None:
    """Amounts from the wire obey the rules of `parse`, so that `str` can be read back."""
    with pytest.raises(InvalidRequest, match="zones"):
        Resources(sets={"zones": frozenset({"a,b"})})


def test_an_absent_scalar_is_zero() -> None:
    assert R("cpus:1")["cpus"] == 1000
    assert R("cpus:1")["mem"] == 0


def test_addition() -> None:
    both = R("cpus:1;ports:[1-2];zones:{a}") + R("cpus:0.5;mem:1GB;ports:[3];zones:{b}")
    assert str(both) == "cpus:1.5;mem:1GB;ports:[1-3];zones:{a,b}"
    assert R("cpus:1") + NOTHING == NOTHING + R("cpus:1") == R("cpus:1")


@pytest.mark.parametrize("text", ["ports:[2-9]", "zones:{a}"])
def test_a_number_or_item_cannot_be_held_twice(text: str) -> None:
    with pytest.raises(ValueError, match="in both"):
        R("ports:[1-2];zones:{a}") + R(text)


def test_subtraction() -> None:
    whole = R("cpus:2;mem:1GB;ports:[1-9];zones:{a,b}")
    rest = whole - R("cpus:2;ports:[4-5];zones:{a}")
    assert str(rest) == "mem:1GB;ports:[1-3,6-9];zones:{b}"
    assert whole - whole == NOTHING
    assert whole - NOTHING is whole


@pytest.mark.parametrize("text", ["cpus:2.001", "gpus:1", "ports:[9-10]", "zones:{c}", "x:[1]"])
def test_subtraction_of_more_fails(text: str) -> None:
    with pytest.raises(ValueError, match="cannot take"):
        R("cpus:2;ports:[1-9];zones:{a,b}") - R(text)
    with pytest.raises(ValueError, match="from nothing"):
        NOTHING - R(text)


def test_units_are_bounded_by_the_scarcest() -> None:
    assert R("cpus:1;mem:1GB").units_within(R("cpus:9;mem:3GB"), 100) == 3
    assert R("cpus:1").units_within(R("cpus:9"), 4) == 4
    assert R("cpus:1;gpus:1").units_within(R("cpus:9"), 4) == 0
    assert R("cpus:0.3").units_within(R("cpus:1"), 100) == 3
    assert R("cpus:1").units_within(R("cpus:9"), -1) == 0


def test_a_scalar_demand_on_ranges_counts_numbers() -> None:
    unit, free = R("cpus:1;ports:2"), R("cpus:4;ports:[10-12,20-22]")
    assert unit.units_within(free, 100) == 3
    assert str(unit.carve(free, 2)) == "cpus:2;ports:[10-12,20]"


def test_a_fraction_of_a_number_takes_a_whole_one() -> None:
    unit, free = R("ports:0.5"), R("ports:[1-3]")
    assert unit.carve(free, 1) == R("ports:[1]")
    units = unit.units_within(free, 100)
    assert unit.carve(free, units) <= free


def test_carving_no_units_is_nothing() -> None:
    assert R("cpus:1;ports:1").carve(R("cpus:1;ports:[1]"), 0) == NOTHING


def test_carving_more_than_is_free_fails() -> None:
    with pytest.raises(ValueError, match="short"):
        R("ports:2").carve(R("ports:[1-3]"), 2)
    with pytest.raises(ValueError, match="cpus"):
        R("cpus:2").carve(R("cpus:3"), 2)


def test_a_total_has_only_scalars() -> None:
    assert str(total_of([R("cpus:1;ports:[1]"), R("cpus:2;mem:1")])) == "cpus:3;mem:1MB"
    assert total_of([]) == NOTHING


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("cpu:0.2", "cpus"),
        ("Cpus:1", "cpus"),
        ("cores:2", "cpus"),
        ("cpus:1;memory:1GB", "mem"),
        ("gpu:1", "gpus"),
        ("PORTS:[1-2]", "ports"),
    ],
)
def test_a_name_near_a_known_resource_is_refused(text: str, meant: str) -> None:
    with pytest.raises(InvalidRequest, match=f"did you mean {meant}\\?.*another name, such as my-"):
        Resources.parse(text)
    assert Resources.parse("my-cpu:1;tpus:2;gpu-a100:1")
    # Messages of peers are taken as they are.
    assert Resources({"cpu": 1000})["cpu"] == 1000


# Sums of amounts take linear time, and offers stay within the limits of a message.


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
