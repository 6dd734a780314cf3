"""The choice of named devices for tasks."""

from __future__ import annotations

import pytest

from croupier.model.devices import (
    Device,
    DeviceNeed,
    DeviceRequest,
    Inventory,
    slots_as_resources,
    slots_of,
)
from croupier.model.errors import InvalidRequest
from croupier.model.resources import Resources


def gpu(name: str, group: str = "", what: str = "", slots: int = 1) -> Device:
    groups = (("nvlink", group),) if group else ()
    return Device(name, type=what, groups=groups, slots=slots)


def chosen(inventory: Inventory, free: str, milli: int, request: DeviceRequest | None) -> str:
    slots = inventory.choose(frozenset(free.split()), DeviceNeed("gpus", milli, request))
    return "none" if slots is None else " ".join(sorted(slots))


TWO_GROUPS = Inventory([gpu(f"a{n}", "0") for n in range(4)] + [gpu(f"b{n}", "1") for n in "01"])
ALL = "a0 a1 a2 a3 b0 b1"


@pytest.mark.parametrize(
    ("free", "number", "same", "expected"),
    [
        (ALL, 1, "", "b0"),
        (ALL, 2, "", "b0 b1"),
        (ALL, 3, "", "a0 a1 a2"),
        (ALL, 5, "", "a0 a1 a2 a3 b0"),
        (ALL, 5, "nvlink", "none"),
        (ALL, 2, "nvlink", "b0 b1"),
        (ALL, 1, "numa", "none"),
        ("a0 b0", 2, "nvlink", "none"),
        ("a0 b0", 2, "", "a0 b0"),
        ("a3 b0 b1", 1, "", "a3"),
        ("", 1, "", "none"),
    ],
)
def test_whole_devices_come_from_the_smallest_group_with_enough(
    free: str, number: int, same: str, expected: str
) -> None:
    request = DeviceRequest(same=same) if same else None
    assert chosen(TWO_GROUPS, free, number * 1000, request) == expected


def test_a_type_is_met_or_nothing_is() -> None:
    mixed = Inventory([gpu("v0", what="v100"), gpu("a0", what="a100")])
    assert chosen(mixed, "v0 a0", 1000, DeviceRequest(type="a100")) == "a0"
    assert chosen(mixed, "v0", 1000, DeviceRequest(type="a100")) == "none"
    assert chosen(mixed, "v0 a0", 2000, DeviceRequest(type="a100")) == "none"


def test_a_part_goes_to_the_fullest_device_whose_slots_can_be_that_much() -> None:
    shared = Inventory([gpu("x", slots=4), gpu("y", slots=5), gpu("z")])
    whole = "x#0 x#1 x#2 x#3 y#0 y#1 y#2 y#3 y#4 z"
    assert chosen(shared, whole, 500, DeviceRequest()) == "x#0 x#1"
    assert chosen(shared, whole, 400, DeviceRequest()) == "y#0 y#1"
    assert chosen(shared, whole, 300, DeviceRequest()) == "none", "no slots are worth that"
    assert chosen(shared, "x#0 x#3 y#0", 250, DeviceRequest()) == "x#0"
    assert chosen(shared, "x#0 x#1 y#0 y#1 y#2", 500, DeviceRequest()) == "x#0 x#1"
    assert chosen(shared, "x#0 x#1 x#2 y#0", 1000, None) == "none", "a shared device is not whole"
    assert chosen(shared, whole, 1000, None) == "z", "what cannot be shared is taken first"
    assert chosen(shared, whole, 1500, DeviceRequest()) == "none"


def test_units_take_different_devices() -> None:
    needs = TWO_GROUPS.needs(Resources.parse("cpus:1;gpus:2"), ())
    parts = TWO_GROUPS.parts(TWO_GROUPS.total, needs, 9)
    assert [[sorted(each) for each in unit] for unit in parts] == [
        [["b0", "b1"]],
        [["a0", "a1"]],
        [["a2", "a3"]],
    ]


def test_certain_resources_have_as_many_devices_as_they_count() -> None:
    total = TWO_GROUPS.total
    assert str(total) == "gpus:6;devices:{a0,a1,a2,a3,b0,b1}"
    one = TWO_GROUPS.certain(Resources.parse("cpus:1;gpus:1"), total)
    assert one == Resources.parse("cpus:1;gpus:1;devices:{b0}")
    assert TWO_GROUPS.certain(Resources.parse("gpus:7"), total) is None
    assert TWO_GROUPS.certain(Resources.parse("cpus:7"), total) == Resources.parse("cpus:7")
    assert TWO_GROUPS.is_certain(total)
    assert not TWO_GROUPS.is_certain(Resources.parse("gpus:1"))
    with pytest.raises(InvalidRequest, match="are not what it asks for"):
        TWO_GROUPS.certain(Resources.parse("gpus:2;devices:{a0}"), total)
    named = Resources.parse("gpus:2;devices:{a0,b0}")
    with pytest.raises(InvalidRequest, match="a0, b0 are not 2 gpus of one nvlink"):
        TWO_GROUPS.certain(named, total, DeviceRequest(same="nvlink"))


def test_an_amount_is_cut_to_the_devices_that_it_counts() -> None:
    shared = Inventory([gpu("x", slots=2), gpu("y")])
    half = shared.total.beside(Resources.parse("gpus:0.5"))
    assert shared.consistent(half) == Resources.parse("gpus:1.5;devices:{x#0,y}")
    left = shared.total - Resources.parse("gpus:1;devices:{y}")
    assert shared.consistent(left) is left
    assert shared.consistent(left.beside(Resources.parse("gpus:0.6"))) == Resources({})
    beside = shared.total.beside(slots_as_resources([frozenset({"y"})]))
    assert slots_of(beside) == {"x#0", "x#1"}


@pytest.mark.parametrize(
    ("device", "message"),
    [
        (Device(""), "no id"),
        (Device("a b"), "cannot be a name"),
        (Device("a#1"), "cannot be a name"),
        (Device("a", "cpus"), "cpus cannot be named devices"),
        (Device("a", slots=3), "has 3 slots"),
        (Device("a", slots=2**62), "has 4611686018427387904 slots"),
        (Device("a", memory_mib=-1), "too much memory"),
    ],
)
def test_a_malformed_device_is_refused(device: Device, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        Inventory([device])


def test_a_request_is_about_what_can_be_devices() -> None:
    with pytest.raises(InvalidRequest, match="cpus cannot be named devices"):
        DeviceRequest("cpus").check(Resources.parse("cpus:1"))


def test_two_devices_have_different_ids() -> None:
    with pytest.raises(InvalidRequest, match="same id"):
        Inventory([gpu("a"), gpu("a")])
