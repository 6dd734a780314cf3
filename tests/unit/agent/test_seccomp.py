"""The filter of system calls, run by an interpreter for each kind of machine."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from croupier.agent.isolation.seccomp import (
    ALLOW,
    DENIED,
    EAFNOSUPPORT,
    ENOSYS,
    EPERM,
    EPROTONOSUPPORT,
    ERRNO,
    KILL,
    MACHINES,
    NUMBERS,
    filter_bytes,
    oci_profile,
)

SIZE = 8


def run_filter(code: bytes, arch: int, number: int, *arguments: int) -> int:
    """Return the answer of a filter to a system call.

    Raises:
        AssertionError: if the kernel would refuse the filter.
    """
    assert len(code) % SIZE == 0
    assert len(code) // SIZE <= 4096
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("=IIQ6Q", number, arch, 0, *padded)
    at = accumulator = 0
    while at < len(code) // SIZE:
        kind, if_true, if_false, value = struct.unpack_from("=HBBI", code, at * SIZE)
        at += 1
        match kind:
            case 0x20:
                assert value % 4 == 0
                (accumulator,) = struct.unpack_from("=I", data, value)
            case 0x15:
                at += if_true if accumulator == value else if_false
            case 0x35:
                at += if_true if accumulator >= value else if_false
            case 0x45:
                at += if_true if accumulator & value else if_false
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"instruction {kind:#x} is not used")
    raise AssertionError("the filter has no answer")


EVERY = pytest.mark.parametrize("machine", MACHINES)
HEADERS = {
    "x86_64": ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"),
    "aarch64": ("/usr/include/asm-generic/unistd.h",),
}


def answer(machine: str, name: str, *arguments: int, has_ports: bool = False) -> int:
    kind = MACHINES[machine]
    number = NUMBERS[name][kind.column]
    assert number is not None
    code = filter_bytes(machine, has_ports=has_ports)
    return run_filter(code, kind.audit, number, *arguments)


@EVERY
def test_what_is_named_is_refused_and_all_else_allowed(machine: str) -> None:
    kind, code = MACHINES[machine], filter_bytes(machine)
    always = {
        NUMBERS[rule.name][kind.column]: rule.error for rule in DENIED if rule.argument is None
    }
    for number in range(600):
        found = run_filter(code, kind.audit, number)
        assert found == (ERRNO | always[number] if number in always else ALLOW), number


@EVERY
def test_conditions_look_at_the_low_half_of_an_argument(machine: str) -> None:
    high = 1 << 40
    thread = 0x3D0F00
    assert answer(machine, "clone", thread) == ALLOW
    for bit in (17, 25, 26, 27, 28, 29, 30):
        assert answer(machine, "clone", thread | 1 << bit) == ERRNO | EPERM
        assert answer(machine, "unshare", 1 << bit | high) == ERRNO | EPERM
    assert answer(machine, "unshare", 0x80) == ERRNO | EPERM
    assert answer(machine, "unshare", 0x400) == ALLOW
    assert answer(machine, "ioctl", 0, 0x5413) == ALLOW
    assert answer(machine, "ioctl", 0, 0x5412 | high) == ERRNO | EPERM
    assert answer(machine, "ioctl", 0, 0x541C) == ERRNO | EPERM
    assert answer(machine, "clone3") == ERRNO | ENOSYS


@EVERY
def test_sockets_beside_tcp_are_refused_with_ports(machine: str) -> None:
    for has_ports in (False, True):
        assert answer(machine, "socket", 2, 1, 6, has_ports=has_ports) == ALLOW
        vsock = answer(machine, "socket", 40, 1, 0, has_ports=has_ports)
        assert vsock == ERRNO | EAFNOSUPPORT
    assert answer(machine, "socket", 2, 1, 262) == ALLOW
    assert answer(machine, "socket", 2, 1, 262, has_ports=True) == ERRNO | EPROTONOSUPPORT
    assert answer(machine, "socket", 43, 1, 0, has_ports=True) == ERRNO | EAFNOSUPPORT


@EVERY
def test_another_abi_is_refused(machine: str) -> None:
    kind, code = MACHINES[machine], filter_bytes(machine)
    for arch in (0x40000003, 0x40000028, 0):
        assert run_filter(code, arch, 1) == KILL
    x32 = run_filter(code, kind.audit, 0x40000000 | 1)
    assert x32 == (ERRNO | ENOSYS if kind.has_x32 else ALLOW)


@EVERY
def test_numbers_are_those_of_the_kernel(machine: str) -> None:
    headers = [path for path in map(Path, HEADERS[machine]) if path.exists()]
    if not headers:
        pytest.skip("there are no headers of the kernel")
    pattern = re.compile(r"#define __NR(?:3264)?_(\w+)\s+(\d+)")
    found = {name: int(number) for name, number in pattern.findall(headers[0].read_text())}
    known = {
        name: numbers[MACHINES[machine].column]
        for name, numbers in NUMBERS.items()
        if name in found or numbers[MACHINES[machine].column] is None
    }
    # These are newer than the headers, or older than the generic table.
    assert len(known) >= len(NUMBERS) - 3
    assert known == {name: found.get(name) for name in known}


@EVERY
def test_a_profile_for_runtimes_names_the_same_calls(machine: str) -> None:
    profile = oci_profile(machine)
    calls = profile["syscalls"]
    assert isinstance(calls, list)
    column = MACHINES[machine].column
    wanted = {name for name, numbers in NUMBERS.items() if numbers[column] is not None}
    assert {name for call in calls for name in call["names"]} == wanted
    clones = [call for call in calls if call["names"] == ["clone"]]
    assert sum(call["args"][0]["value"] for call in clones) == 0x7E020000


def test_a_machine_without_numbers_has_no_filter() -> None:
    with pytest.raises(KeyError):
        filter_bytes("riscv64")
