"""Named devices of an agent: their file, their drivers, and the variables of tasks."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from croupier.agent import devices as agent_devices
from croupier.agent.devices import read_devices, variables, with_devices
from croupier.model.devices import Device, Inventory
from croupier.model.errors import InvalidRequest
from croupier.model.resources import Resources

FILE = """
[[device]]
id = "GPU-1"
type = "a100"
memory = "80GB"
groups = { nvlink = "0", numa = "1" }

[[device]]
id = "GPU-2"
memory = "16GB"
slots = 4
"""


def read(tmp_path: Path, text: str) -> Inventory:
    path = tmp_path / "devices.toml"
    path.write_text(text)
    return read_devices(str(path))


def test_a_file_names_devices(tmp_path: Path) -> None:
    assert read(tmp_path, FILE).devices == (
        Device("GPU-1", "gpus", "a100", 81920, (("numa", "1"), ("nvlink", "0"))),
        Device("GPU-2", memory_mib=16384, slots=4),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[device]", "not TOML"),
        ("", "one table"),
        ("[device]\nid = '1'", "one table"),
        ("device = [1]", "device 1 is not a table"),
        ("[[device]]\nid = 1", "id is a text"),
        ("[[device]]\nname = '1'", "unknown key 'name'"),
        ("[[device]]\nid = '1'\ngroups = 'x'", "groups is a table"),
        ("[[device]]\nid = '1'\nslots = '4'", "slots is a number"),
        ("[[device]]\nid = '1'\nslots = 3", "has 3 slots"),
        ("[[device]]\nid = '1'\nmemory = '80'", "has no unit"),
        ("[[device]]\ntype = 'a100'", "no id"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        read(tmp_path, text)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"none\.toml: cannot be read: No such file"):
        read_devices(str(tmp_path / "none.toml"))


def pretended() -> list[Device]:
    return [Device("GPU-7")]


def broken() -> list[Device]:
    raise OSError("no such library: libgpu.so")


def wrong() -> list[object]:
    return [Device("GPU-7"), "GPU-8"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken", "--devices driver:mine: the driver failed: OSError: no such library: libgpu.so"),
        ("absent", "the driver failed: AttributeError: .*absent"),
        ("wrong", "the driver returns str in place of Device"),
        ("FILE", "the driver failed: TypeError: 'str' object is not callable"),
    ],
)
def test_a_driver_that_fails_is_an_error_of_the_configuration(
    name: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = EntryPoint("mine", f"{__name__}:{name}", agent_devices.DRIVERS)
    monkeypatch.setattr(agent_devices, "entry_points", lambda group: [entry])
    with pytest.raises(InvalidRequest, match=message):
        read_devices("driver:mine")


def test_a_driver_of_an_installed_package_lists_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("mine", f"{__name__}:pretended", agent_devices.DRIVERS)
    monkeypatch.setattr(agent_devices, "entry_points", lambda group: [entry])
    assert read_devices("driver:mine").devices == (Device("GPU-7"),)
    with pytest.raises(InvalidRequest, match="no installed package has a driver 'other'"):
        read_devices("driver:other")


def test_devices_are_counted_by_the_agent(tmp_path: Path) -> None:
    inventory = read(tmp_path, FILE)
    total = with_devices(Resources.parse("cpus:4"), inventory)
    named = "cpus:4;gpus:2;devices:{GPU-1,GPU-2#0,GPU-2#1,GPU-2#2,GPU-2#3}"
    assert total == Resources.parse(named)
    assert with_devices(Resources.parse("cpus:4;gpus:2"), inventory) == total
    assert with_devices(Resources.parse("gpus:2"), None) == Resources.parse("gpus:2")
    with pytest.raises(InvalidRequest, match="another number of gpus"):
        with_devices(Resources.parse("gpus:3"), inventory)


def test_a_task_sees_its_devices_and_no_others(tmp_path: Path) -> None:
    inventory = read(tmp_path, FILE)
    assert variables(None, Resources.parse("gpus:1")) == {}
    assert variables(inventory, Resources.parse("cpus:1")) == {"CUDA_VISIBLE_DEVICES": ""}
    mine = Resources.parse("gpus:1.5;devices:{GPU-1,GPU-2#0,GPU-2#3}")
    assert variables(inventory, mine) == {
        "CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2",
        "CROUPIER_DEVICES": "GPU-1,GPU-2",
        "CROUPIER_DEVICE_PARTS": "1,0.5",
        "CROUPIER_DEVICE_MEMORY_MIB": "81920,8192",
    }


def test_only_gpus_are_named_to_cuda() -> None:
    others = Inventory([Device("f0", "fpgas")])
    assert variables(others, Resources.parse("cpus:1")) == {}
    mine = variables(others, Resources.parse("fpgas:1;devices:{f0}"))
    assert (mine["CROUPIER_DEVICES"], "CUDA_VISIBLE_DEVICES" in mine) == ("f0", False)
