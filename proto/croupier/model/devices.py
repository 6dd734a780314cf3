"""Named devices of an agent, such as its GPUs, and the choice of those that a task gets.

A device has slots: one, or more if tasks may share it. The free slots of an agent are the items of
the set `devices` of its resources, so they are added and subtracted like any set. The amount of a
kind, such as `gpus:2`, stays a scalar, which shares and limits count. A unit of it is a device: 1
or more are whole devices, and less than 1 is some slots of one device.

Rule: of a kind with named devices, each certain amount (of an agent, an offer, a hold or a task)
has as many thousandths as its slots are worth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import Final

from croupier.model.errors import InvalidRequest
from croupier.model.resources import NOTHING, Resources, check_names, in_order
from croupier.model.scalar import MILLI
from croupier.model.value import value

# The set of the slots.
DEVICES: Final = "devices"
MAX_DEVICES: Final = 256
# Of one device; a whole device is divided into equal thousandths.
MAX_SLOTS: Final = 20
MAX_GROUPS: Final = 8
MAX_TEXT: Final = 128
# Kinds that cannot be devices.
_AMOUNTS: Final = frozenset({"cpus", "mem", "disk", "ports", DEVICES})

Slots = frozenset[str]
# The slots of each need of a unit.
Parts = tuple[Slots, ...]


@value
class Device:
    """A device of an agent.

    Attributes:
        kind: the resource that counts it.
        type: such as `a100`; empty if it is unknown.
        memory_mib: its memory; 0 if it is unknown.
        groups: by the name of a topology, such as `nvlink`, the group of connected devices that it
            is in.
        slots: how many tasks can share it.
    """

    device_id: str
    kind: str = "gpus"
    type: str = ""
    memory_mib: int = 0
    groups: tuple[tuple[str, str], ...] = ()
    slots: int = 1

    @property
    def items(self) -> tuple[str, ...]:
        """The names of its slots."""
        if self.slots == 1:
            return (self.device_id,)
        return tuple(f"{self.device_id}#{number}" for number in range(self.slots))

    def group(self, topology: str) -> str:
        """Return its group in a topology; empty if it is in none."""
        return dict(self.groups).get(topology, "")

    def check(self) -> None:
        """Raise InvalidRequest if a value is malformed or out of range."""
        texts = (self.device_id, self.type, *(text for pair in self.groups for text in pair))
        for text in texts:
            if len(text) > MAX_TEXT or not text.isprintable() or set(text) & set(" ,{}[];:#"):
                raise InvalidRequest(f"{text[:80]!r} cannot be a name of a device or of its type")
        if not self.device_id:
            raise InvalidRequest("a device has no id")
        _check_kind(self.kind)
        if not 1 <= self.slots <= MAX_SLOTS or MILLI % self.slots:
            raise InvalidRequest(
                f"device {self.device_id} has {self.slots} slots; a device has 1, 2, 4, 5, 8, 10 or"
                " 20"
            )
        if not 0 <= self.memory_mib < 2**40 or len(self.groups) > MAX_GROUPS:
            raise InvalidRequest(f"device {self.device_id} has too much memory or too many groups")


@value
class DeviceRequest:
    """What a task asks of its devices, beside their number in its resources.

    Attributes:
        kind: the resource that counts them.
        type: they are all of this type; empty: of any.
        same: they are all in the same group of this topology; empty: of any.
    """

    kind: str = "gpus"
    type: str = ""
    same: str = ""

    @property
    def size(self) -> int:
        """Characters of its text."""
        return len(self.kind) + len(self.type) + len(self.same)

    def check(self, amount: Resources) -> None:
        """Raise InvalidRequest if it is malformed, or no device can be that part of `amount`."""
        _check_kind(self.kind)
        if max(len(self.type), len(self.same)) > MAX_TEXT:
            raise InvalidRequest(f"a type or topology of devices is longer than {MAX_TEXT}")
        milli = amount[self.kind]
        if not milli:
            raise InvalidRequest(f"the task describes {self.kind}, and its resources have none")
        if milli > MILLI and milli % MILLI:
            raise InvalidRequest(
                f"{self.kind} must be whole, or less than 1 for a part of one device"
            )

    def __str__(self) -> str:
        together = f" of one {self.same}" if self.same else ""
        return f"{self.kind}{f' of type {self.type}' if self.type else ''}{together}"


def _check_kind(kind: str) -> None:
    check_names([kind])
    if kind in _AMOUNTS:
        raise InvalidRequest(f"{kind} cannot be named devices")


@value
class DeviceNeed:
    """The devices that one task needs of one kind; `request` is None if any will do."""

    kind: str
    milli: int
    request: DeviceRequest | None = None

    def suits(self, device: Device) -> bool:
        """Return whether the device is one of those that the need is about."""
        wanted = "" if self.request is None else self.request.type
        return device.kind == self.kind and wanted in ("", device.type)

    def __str__(self) -> str:
        what = self.kind if self.request is None else self.request
        return f"{self.milli / MILLI:g} {what}"


def needs_of(amount: Resources, request: DeviceRequest | None) -> tuple[DeviceNeed, ...]:
    """Return the needs of a task with these resources, on an agent where all could be devices."""
    return tuple(
        DeviceNeed(name, amount[name], request if request and request.kind == name else None)
        for name in in_order(amount.scalars)
        if name not in _AMOUNTS
    )


class Inventory:
    """The named devices of an agent. Immutable.

    Attributes:
        devices: in the order in which they are preferred.
        kinds: the resources that count them.
    """

    def __init__(self, devices: Iterable[Device]) -> None:
        """Raise InvalidRequest if there are too many, or two have one id."""
        self.devices = tuple(devices)
        if len(self.devices) > MAX_DEVICES:
            raise InvalidRequest(f"an agent has at most {MAX_DEVICES} named devices")
        for device in self.devices:
            device.check()
        if len({device.device_id for device in self.devices}) < len(self.devices):
            raise InvalidRequest("two devices have the same id")
        self.kinds = frozenset(device.kind for device in self.devices)
        # Checked before: a peer may say that a device has billions of slots.
        self._by_item = {item: device for device in self.devices for item in device.items}

    @cached_property
    def total(self) -> Resources:
        """All devices, as resources."""
        scalars = Counter(device.kind for device in self.devices)
        milli = {kind: number * MILLI for kind, number in scalars.items()}
        return Resources(milli, sets={DEVICES: frozenset(self._by_item)})

    def check(self, total: Resources) -> None:
        """Raise InvalidRequest if the agent's resources have others than these."""
        if slots_of(total) != slots_of(self.total) or not self.is_certain(total):
            raise InvalidRequest("the agent's resources do not agree with its named devices")

    def by_device(self, slots: Collection[str]) -> dict[Device, int]:
        """Return how many of these slots each device has, in order, without those with none."""
        found = Counter(self._by_item[item] for item in slots if item in self._by_item)
        return {device: found[device] for device in self.devices if found[device]}

    def amounts(self, slots: Collection[str]) -> dict[str, int]:
        """Return the thousandths of each kind that slots are worth."""
        found = dict.fromkeys(sorted(self.kinds), 0)
        for device, number in self.by_device(slots).items():
            found[device.kind] += number * MILLI // device.slots
        return found

    def is_certain(self, amount: Resources) -> bool:
        """Return whether an amount names as many devices as it has."""
        worth = self.amounts(slots_of(amount))
        return all(amount[kind] == milli for kind, milli in worth.items())

    def shape(self, total: Resources) -> object:
        """Return what a part of the agent can serve: equal for devices that differ by their ids."""
        parts = self.by_device(slots_of(total)).items()
        return tuple((d.kind, d.type, d.groups, d.slots, number) for d, number in parts)

    def needs(self, unit: Resources, needs: Sequence[DeviceNeed]) -> tuple[DeviceNeed, ...]:
        """Return the needs of a unit, given those that were stated.

        Those without a request are left out if the agent has no named devices of their kind.
        """
        found = needs or needs_of(unit, None)
        return tuple(need for need in found if need.kind in self.kinds or need.request)

    def serves(self, slots: Slots, unit: Resources, needs: Sequence[DeviceNeed]) -> bool:
        """Return whether a unit may need one of the devices that these slots are of."""
        devices = self.by_device(slots)
        return any(need.suits(each) for need in self.needs(unit, needs) for each in devices)

    def parts(self, free: Resources, needs: Sequence[DeviceNeed], most: int) -> list[Parts]:
        """Return slots for as many units as `free` has room for, at most `most`."""
        found: list[Parts] = []
        left = slots_of(free)
        while len(found) < most:
            unit: list[Slots] = []
            for need in needs:
                chosen = self.choose(left, need)
                if chosen is None:
                    return found
                unit.append(chosen)
                left -= chosen
            found.append(tuple(unit))
        return found

    def choose(self, free: Slots, need: DeviceNeed) -> Slots | None:
        """Return the slots to take for a need; None if there is no room.

        A part goes to the fullest device. Whole devices come from the smallest group of connected
        devices that has enough, so large groups stay whole.
        """
        rooms = {d: n for d, n in self.by_device(free).items() if need.suits(d)}
        whole = [device for device, number in rooms.items() if number == device.slots]
        if need.milli >= MILLI:
            number, rest = divmod(need.milli, MILLI)
            same = "" if need.request is None else need.request.same
            chosen = None if rest else _whole(whole, number, same)
            return None if chosen is None else frozenset(i for d in chosen for i in d.items)
        connected = Counter(device.groups for device in whole)
        fitting = [
            (number * MILLI // device.slots, connected[device.groups], place, device)
            for place, (device, number) in enumerate(rooms.items())
            if not need.milli * device.slots % MILLI
            and need.milli * device.slots // MILLI <= number
        ]
        if not fitting:
            return None
        device = min(fitting, key=lambda each: each[:3])[3]
        items = [item for item in device.items if item in free]
        return frozenset(items[: need.milli * device.slots // MILLI])

    def certain(
        self, amount: Resources, free: Resources, request: DeviceRequest | None = None
    ) -> Resources | None:
        """Return `amount` with slots of `free`, if it names none; None if there is no room.

        Raises InvalidRequest if it names some that are not what it asks for.
        """
        needs = self.needs(amount, needs_of(amount, request))
        named = slots_of(amount)
        if named:
            self._check_named(amount, needs)
            return amount
        found = self.parts(free, needs, 1)
        if not found or not needs:
            return None if needs else amount
        return amount + slots_as_resources(found[0])

    def consistent(self, amount: Resources) -> Resources:
        """Return the largest part of `amount` whose slots are worth its scalars."""
        if self.is_certain(amount):
            return amount
        slots = slots_of(amount)
        worth = self.amounts(slots)
        kept: set[str] = set()
        room = {kind: min(amount[kind], milli) for kind, milli in worth.items()}
        # The fullest devices first, so that whole ones stay whole.
        for device, number in sorted(self.by_device(slots).items(), key=lambda pair: pair[1]):
            each = MILLI // device.slots
            items = [item for item in device.items if item in slots]
            taken = items[: min(number, room[device.kind] // each)]
            room[device.kind] -= len(taken) * each
            kept.update(taken)
        scalars = {**amount.scalars, **self.amounts(kept)}
        sets = {**amount.sets, DEVICES: frozenset(kept)}
        return Resources(scalars, amount.ranges, sets)

    def undivided(self, part: Resources, whole: Resources) -> Resources:
        """Return a part of `whole`, without devices if it has not all of them."""
        if slots_of(part) == slots_of(whole):
            return part
        scalars = {name: milli for name, milli in part.scalars.items() if name not in self.kinds}
        return Resources(scalars, part.ranges, without_slots(part).sets)

    def _check_named(self, amount: Resources, needs: Sequence[DeviceNeed]) -> None:
        slots = slots_of(amount)
        if not self.is_certain(amount):
            raise InvalidRequest(f"the devices {', '.join(sorted(slots))} are not what it asks for")
        for need in needs:
            mine = frozenset(
                item for item in slots if (d := self._by_item.get(item)) and d.kind == need.kind
            )
            if self.choose(mine, need) != mine:
                raise InvalidRequest(f"{', '.join(sorted(mine))} are not {need}")


def units_with_devices(
    inventory: Inventory | None,
    unit: Resources,
    needs: Sequence[DeviceNeed],
    room: Resources,
    most: int,
) -> int:
    """Return for how many units a part of an agent has the devices, at most `most`.

    An agent without named devices has those of needs without a request.
    """
    if inventory is None:
        return 0 if any(need.request for need in needs) else most
    needs = inventory.needs(unit, needs)
    return len(inventory.parts(room, needs, most)) if needs else most


def _whole(devices: Sequence[Device], number: int, same: str) -> list[Device] | None:
    groups: dict[object, list[Device]] = {}
    # Devices that cannot be shared come first.
    for device in sorted(devices, key=lambda each: each.slots):
        group = device.group(same) if same else device.groups
        if group or not same:
            groups.setdefault(group, []).append(device)
    fitting = [group for group in groups.values() if len(group) >= number]
    if fitting:
        return min(fitting, key=len)[:number]
    if same or len(devices) < number:
        return None
    largest_first = sorted(groups.values(), key=len, reverse=True)
    return [device for group in largest_first for device in group][:number]


def slots_of(amount: Resources) -> Slots:
    """Return the slots of devices in an amount."""
    return amount.sets.get(DEVICES, frozenset())


def without_slots(amount: Resources) -> Resources:
    """Return an amount without the names of devices."""
    if DEVICES not in amount.sets:
        return amount
    sets = {name: items for name, items in amount.sets.items() if name != DEVICES}
    return Resources(amount.scalars, amount.ranges, sets)


def slots_as_resources(parts: Iterable[Slots]) -> Resources:
    """Return slots as resources, without the scalars that count them."""
    slots: Slots = frozenset().union(*parts)
    return Resources(sets={DEVICES: slots}) if slots else NOTHING
