"""The agent's named devices: read from a file or a driver, and told to tasks by variables.

A driver is a function of an installed package that returns the devices of the machine. The package
names it as an entry point of the group `croupier.devices`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from croupier.agent.core.tasks import LocalTask
from croupier.model.devices import Device, Inventory, slots_of
from croupier.model.errors import InvalidRequest
from croupier.model.resources import Resources
from croupier.model.scalar import MILLI, check_unit, parse_scalar

Driver = Callable[[], Iterable[Device]]
DRIVERS: Final = "croupier.devices"
DRIVER_PREFIX: Final = "driver:"
# The variable by which CUDA knows the devices of a process.
CUDA: Final = "CUDA_VISIBLE_DEVICES"
_KEYS: Final = frozenset({"id", "kind", "type", "memory", "groups", "slots"})


def read_devices(source: str) -> Inventory:
    """Return the devices of a TOML file, or of `driver:NAME`.

    Raises InvalidRequest if the source cannot be read, or its devices are malformed.
    """
    try:
        if source.startswith(DRIVER_PREFIX):
            return Inventory(_of_driver(source.removeprefix(DRIVER_PREFIX)))
        return Inventory(_of_file(Path(source)))
    except InvalidRequest as error:
        raise InvalidRequest(f"--devices {source}: {error}") from None


def _of_driver(name: str) -> list[Device]:
    found = [each for each in entry_points(group=DRIVERS) if each.name == name]
    if not found:
        raise InvalidRequest(f"no installed package has a driver {name!r} for devices")
    try:
        driver: Driver = found[0].load()
        devices = list(driver())
    except Exception as error:
        raise InvalidRequest(f"the driver failed: {type(error).__name__}: {error}") from error
    for each in devices:
        if not isinstance(each, Device):
            raise InvalidRequest(f"the driver returns {type(each).__name__} in place of Device")
    return devices


def _of_file(path: Path) -> list[Device]:
    import tomllib

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidRequest(f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InvalidRequest(f"not TOML: {error}") from None
    tables = content.get("device")
    if set(content) != {"device"} or not isinstance(tables, list):
        raise InvalidRequest("give one table [[device]] for each device, and nothing else")
    return [_device(table, place) for place, table in enumerate(tables, 1)]


def _device(table: object, place: int) -> Device:
    where = f"device {place}"
    if not isinstance(table, Mapping):
        raise InvalidRequest(f"{where} is not a table")
    for key in table.keys() - _KEYS:
        raise InvalidRequest(f"{where}: unknown key {key!r}; keys are {', '.join(sorted(_KEYS))}")
    groups = table.get("groups", {})
    if not isinstance(groups, Mapping):
        raise InvalidRequest(f'{where}: groups is a table, such as {{ nvlink = "0" }}')
    named = tuple((str(topology), str(group)) for topology, group in sorted(groups.items()))
    slots = table.get("slots", 1)
    if not isinstance(slots, int) or isinstance(slots, bool):
        raise InvalidRequest(f"{where}: slots is a number")
    return Device(
        _text(table, "id", where),
        _text(table, "kind", where, "gpus"),
        _text(table, "type", where),
        _memory_mib(_text(table, "memory", where)),
        named,
        slots,
    )


def _text(table: Mapping[str, Any], key: str, where: str, default: str = "") -> str:
    value = table.get(key, default)
    if not isinstance(value, str):
        raise InvalidRequest(f"{where}: {key} is a text in quotes")
    return value


def _memory_mib(text: str) -> int:
    return parse_scalar("mem", check_unit("mem", text)) // MILLI if text else 0


def with_devices(total: Resources, inventory: Inventory | None) -> Resources:
    """Return an agent's resources with its named devices.

    Raises InvalidRequest if it was given another number of them.
    """
    if inventory is None:
        return total
    for kind in sorted(inventory.kinds):
        if total[kind] not in (0, inventory.total[kind]):
            raise InvalidRequest(f"--resources has another number of {kind} than --devices")
    others = {name: milli for name, milli in total.scalars.items() if name not in inventory.kinds}
    return Resources(others, total.ranges, total.sets) + inventory.total


def check_tasks(inventory: Inventory | None, tasks: Iterable[LocalTask]) -> None:
    """Raise InvalidRequest if a live task has devices of the inventory without their names."""
    if inventory is None:
        return
    for task in tasks:
        if not task.state.is_terminal and not inventory.is_certain(task.info.resources):
            raise InvalidRequest(
                f"--devices: task {task.info.task_id} has such devices without names; end it first"
            )


def variables(inventory: Inventory | None, task: Resources) -> dict[str, str]:
    """Return the variables that name the devices of a task, on an agent that has some.

    The lists have an entry for each device: its id, the task's part of it, and its part of the
    memory. Nothing enforces a part; the task has to keep to it.
    """
    if inventory is None:
        return {}
    mine = inventory.by_device(slots_of(task))
    gpus = [device.device_id for device in mine if device.kind == "gpus"]
    # A task without a device sees none.
    found = {CUDA: ",".join(gpus)} if "gpus" in inventory.kinds else {}
    if mine:
        found["CROUPIER_DEVICES"] = ",".join(device.device_id for device in mine)
        parts = [f"{number / device.slots:g}" for device, number in mine.items()]
        found["CROUPIER_DEVICE_PARTS"] = ",".join(parts)
        memory = [device.memory_mib * number // device.slots for device, number in mine.items()]
        found["CROUPIER_DEVICE_MEMORY_MIB"] = ",".join(map(str, memory))
    return found
