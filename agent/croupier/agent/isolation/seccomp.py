"""A filter of system calls, as instructions for the kernel or as a profile of a container runtime.

The filter is a list of exceptions: what it does not name is allowed. It names calls that change the
machine rather than the task (mounts, modules, clock, swap), open a large part of the kernel to
attack (bpf, perf events, key rings, io_uring, userfaultfd, user namespaces), or get around other
isolation. Programs may still trace their own children. Landlock keeps them from tracing others.

Programs of other ABIs of the machine (i386, x32) are refused, since the numbers of their system
calls are others.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

EPERM: Final = 1
ENOSYS: Final = 38
EPROTONOSUPPORT: Final = 93
EAFNOSUPPORT: Final = 97

# The flags of clone and unshare that make namespaces; CLONE_NEWTIME is one of unshare alone.
NEW_NAMESPACES: Final = 0x7E020000
CLONE_NEWTIME: Final = 0x80
# Numbers on x86_64 and aarch64; None: it does not exist there.
NUMBERS: Final[dict[str, tuple[int | None, int | None]]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "pivot_root": (155, 41),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "socket": (41, 198),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
# The C library falls back from clone3 to clone, whose flags a filter can read.
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_AF_VSOCK, _AF_SMC, _IPPROTO_MPTCP = 40, 43, 262
# Instructions of the packet filter that seccomp uses.
LOAD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_SET, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
# Offsets in the data of a system call; both machines are little-endian.
NUMBER_AT, ARCH_AT, ARGUMENTS_AT = 0, 4, 16
_X32_BIT = 0x40000000
_MOST_JUMP = 255


@dataclass(frozen=True, slots=True)
class Denied:
    """A system call that answers with an error, always or by the low 32 bits of an `argument`.

    It does so if the argument has a bit of `any_of`, or is one of `values`.
    """

    name: str
    error: int = EPERM
    argument: int | None = None
    any_of: int = 0
    values: tuple[int, ...] = ()


_CONDITIONAL: Final = (
    Denied("clone", EPERM, 0, any_of=NEW_NAMESPACES),
    Denied("clone3", ENOSYS),
    # Both put input into a terminal.
    Denied("ioctl", EPERM, 1, values=(_TIOCSTI, _TIOCLINUX)),
    # Sockets to the machine below, if this one is virtual.
    Denied("socket", EAFNOSUPPORT, 0, values=(_AF_VSOCK,)),
    Denied("unshare", EPERM, 0, any_of=NEW_NAMESPACES | CLONE_NEWTIME),
)
_ALWAYS: Final = tuple(
    Denied(name) for name in NUMBERS if name not in {each.name for each in _CONDITIONAL}
)
DENIED: Final = (*_ALWAYS, *_CONDITIONAL)
# Sockets that can take the place of TCP ones: Landlock does not restrict the ports of these.
DENIED_WITH_PORTS: Final = (
    Denied("socket", EPROTONOSUPPORT, 2, values=(_IPPROTO_MPTCP,)),
    Denied("socket", EAFNOSUPPORT, 0, values=(_AF_SMC,)),
)


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


def is_supported() -> bool:
    """Return whether there is a filter for this kind of machine."""
    return platform.machine() in MACHINES


def filter_bytes(machine: str = "", *, has_ports: bool = False) -> bytes:
    """Return the filter for the kernel, such as for the shim or `bwrap --seccomp`.

    `machine` is by default this one's kind; raises KeyError if there is no filter for it.
    `has_ports`: refuse sockets on which Landlock does not restrict ports.
    """
    kind = MACHINES[machine or platform.machine()]
    rules = [
        (number, rule)
        for rule in ((*DENIED, *DENIED_WITH_PORTS) if has_ports else DENIED)
        if (number := NUMBERS[rule.name][kind.column]) is not None
    ]
    code = [
        _instruction(LOAD, ARCH_AT),
        _instruction(JUMP_EQUAL, kind.audit, 1, 0),
        _instruction(RETURN, KILL),
        _instruction(LOAD, NUMBER_AT),
    ]
    if kind.has_x32:
        code += [_instruction(JUMP_AT_LEAST, _X32_BIT, 0, 1), _instruction(RETURN, ERRNO | ENOSYS)]
    for error in sorted({rule.error for _, rule in rules}):
        code += _always(
            [number for number, rule in rules if rule.argument is None and rule.error == error],
            error,
        )
    conditional = [(number, rule) for number, rule in rules if rule.argument is not None]
    for number in sorted({number for number, _ in conditional}):
        code += _conditional(number, [rule for each, rule in conditional if each == number])
    return b"".join([*code, _instruction(RETURN, ALLOW)])


def oci_profile(machine: str = "") -> dict[str, object]:
    """Return the same filter as OCI's `linux.seccomp`; raises KeyError for another machine."""
    kind = MACHINES[machine or platform.machine()]
    calls = [
        {"names": [rule.name], "action": "SCMP_ACT_ERRNO", "errnoRet": rule.error, **condition}
        for rule in DENIED
        if NUMBERS[rule.name][kind.column] is not None
        for condition in _oci_conditions(rule)
    ]
    return {"defaultAction": "SCMP_ACT_ALLOW", "architectures": [kind.oci_name], "syscalls": calls}


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
        code.append(_instruction(LOAD, ARGUMENTS_AT + 8 * rule.argument))
        refuse = _instruction(RETURN, ERRNO | rule.error)
        if rule.any_of:
            code += [_instruction(JUMP_SET, rule.any_of, 0, 1), refuse]
        for value in rule.values:
            code += [_instruction(JUMP_EQUAL, value, 0, 1), refuse]
    code.append(_instruction(RETURN, ALLOW))
    assert len(code) <= _MOST_JUMP
    return [_instruction(JUMP_EQUAL, number, 0, len(code)), *code]


def _oci_conditions(rule: Denied) -> Iterable[dict[str, object]]:
    """Return the conditions of rules; each refuses the call."""
    if rule.argument is None:
        return [{}]
    bits = [1 << at for at in range(32) if rule.any_of >> at & 1]
    masked = [{"value": bit, "valueTwo": bit, "op": "SCMP_CMP_MASKED_EQ"} for bit in bits]
    # Only the low half of an argument counts.
    equal = [
        {"value": 0xFFFFFFFF, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
        for value in rule.values
    ]
    return [{"args": [{"index": rule.argument, **test}]} for test in (*masked, *equal)]
