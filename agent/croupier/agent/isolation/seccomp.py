"""A filter of system calls, as instructions for the kernel or as a profile of a container runtime.

The filter is a list of exceptions: what it does not name is allowed. Programs of other ABIs of the
machine (i386, x32) are refused, since the numbers of their system calls are others.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from croupier.agent.isolation.system_calls import (
    DENIED,
    DENIED_WITH_PORTS,
    ENOSYS,
    NUMBERS,
    Argument,
    Denied,
)

# Instructions of the packet filter that seccomp uses.
LOAD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_SET, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
# Offsets in the data of a system call; both machines are little-endian.
NUMBER_AT, ARCH_AT, ARGUMENTS_AT = 0, 4, 16
_X32_BIT = 0x40000000
_MOST_JUMP = 255


@dataclass(frozen=True, slots=True)
class Architecture:
    """A kind of machine that a filter can be built for.

    Attributes:
        audit: its number in the data of a system call.
        column: of `NUMBERS`.
        has_x32: whether numbers from 2^30 on are those of another ABI.
        oci_name: in profiles of container runtimes.
    """

    audit: int
    column: int
    has_x32: bool
    oci_name: str


MACHINES: Final = {
    "x86_64": Architecture(0xC000003E, 0, True, "SCMP_ARCH_X86_64"),
    "aarch64": Architecture(0xC00000B7, 1, False, "SCMP_ARCH_AARCH64"),
}


def is_supported(machine: str = "") -> bool:
    """Return whether there is a filter for this kind of machine."""
    return (machine or platform.machine()) in MACHINES


def filter_bytes(machine: str = "", *, has_ports: bool = False) -> bytes:
    """Return the filter for the kernel, such as for the shim or `bwrap --seccomp`.

    Args:
        machine: the kind of machine, by default this one.
        has_ports: whether sockets are refused on which Landlock does not restrict ports.

    Raises:
        KeyError: if there is none for the machine.
    """
    kind = MACHINES[machine or platform.machine()]
    rules = [
        (number, rule)
        for rule in _rules(has_ports=has_ports)
        if (number := NUMBERS[rule.name][kind.column]) is not None
    ]
    code = [
        _instruction(LOAD, ARCH_AT),
        _instruction(JUMP_EQUAL, kind.audit, 1, 0),
        _instruction(RETURN, KILL),
        _instruction(LOAD, NUMBER_AT),
    ]
    if kind.has_x32:
        code += [
            _instruction(JUMP_AT_LEAST, _X32_BIT, 0, 1),
            _instruction(RETURN, ERRNO | ENOSYS),
        ]
    for error in sorted({rule.error for _, rule in rules}):
        code += _always(
            [number for number, rule in rules if rule.argument is None and rule.error == error],
            error,
        )
    conditional = [(number, rule) for number, rule in rules if rule.argument is not None]
    for number in sorted({number for number, _ in conditional}):
        code += _conditional(number, [rule for each, rule in conditional if each == number])
    return b"".join([*code, _instruction(RETURN, ALLOW)])


def oci_profile(machine: str = "", *, has_ports: bool = False) -> dict[str, object]:
    """Return the same filter as `linux.seccomp` of an OCI runtime's configuration.

    Raises:
        KeyError: if there is none for the machine.
    """
    kind = MACHINES[machine or platform.machine()]
    calls = [
        {"names": [rule.name], "action": "SCMP_ACT_ERRNO", "errnoRet": rule.error, **condition}
        for rule in _rules(has_ports=has_ports)
        if NUMBERS[rule.name][kind.column] is not None
        for condition in _oci_conditions(rule.argument)
    ]
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": [kind.oci_name],
        "syscalls": calls,
    }


def _rules(*, has_ports: bool) -> Iterable[Denied]:
    return (*DENIED, *DENIED_WITH_PORTS) if has_ports else DENIED


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _always(numbers: Collection[int], error: int) -> list[bytes]:
    """Refuse these system calls; the accumulator holds the number."""
    assert len(numbers) < _MOST_JUMP
    if not numbers:
        return []
    last = len(numbers) - 1
    return [
        *(
            _instruction(JUMP_EQUAL, number, last - at, 1 if at == last else 0)
            for at, number in enumerate(sorted(numbers))
        ),
        _instruction(RETURN, ERRNO | error),
    ]


def _conditional(number: int, rules: Iterable[Denied]) -> list[bytes]:
    """Refuse a system call if one of the rules' conditions holds."""
    code: list[bytes] = []
    for rule in rules:
        assert rule.argument is not None
        code.append(_instruction(LOAD, ARGUMENTS_AT + 8 * rule.argument.index))
        refuse = _instruction(RETURN, ERRNO | rule.error)
        if rule.argument.any_of:
            code += [_instruction(JUMP_SET, rule.argument.any_of, 0, 1), refuse]
        for value in rule.argument.values:
            code += [_instruction(JUMP_EQUAL, value, 0, 1), refuse]
    code.append(_instruction(RETURN, ALLOW))
    assert len(code) <= _MOST_JUMP
    return [_instruction(JUMP_EQUAL, number, 0, len(code)), *code]


def _oci_conditions(argument: Argument | None) -> Iterable[dict[str, object]]:
    """Return the conditions of rules; each refuses the call."""
    if argument is None:
        return [{}]
    bits = [1 << at for at in range(32) if argument.any_of >> at & 1]
    masked = [{"value": bit, "valueTwo": bit, "op": "SCMP_CMP_MASKED_EQ"} for bit in bits]
    # Only the low half of an argument counts.
    equal = [
        {"value": 0xFFFFFFFF, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
        for value in argument.values
    ]
    return [{"args": [{"index": argument.index, **test}]} for test in (*masked, *equal)]
