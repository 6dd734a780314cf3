"""The system calls that tasks may not make, and their numbers.

They change the machine rather than the task (mounts, modules, clock, swap), open a large part of
the kernel to attack (bpf, perf events, key rings, io_uring, userfaultfd, user namespaces), or get
around other isolation. Programs may still trace their own children. Landlock keeps them from
tracing others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

EPERM: Final = 1
ENOSYS: Final = 38
EPROTONOSUPPORT: Final = 93
EAFNOSUPPORT: Final = 97

# The flags of clone and unshare that make namespaces; CLONE_NEWTIME is one of unshare alone.
NEW_NAMESPACES: Final = 0x7E020000
CLONE_NEWTIME: Final = 0x80


@dataclass(frozen=True, slots=True)
class Argument:
    """A condition on the low 32 bits of an argument: its bits in `any_of`, or a value in `values`.

    Attributes:
        index: from 0.
        any_of: holds if the argument has one of these bits.
        values: holds if the argument is one of these.
    """

    index: int
    any_of: int = 0
    values: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Denied:
    """A system call that answers with an error, always or if a condition on an argument holds."""

    name: str
    error: int = EPERM
    argument: Argument | None = None


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
_CONDITIONAL: Final = (
    Denied("clone", EPERM, Argument(0, any_of=NEW_NAMESPACES)),
    Denied("clone3", ENOSYS),
    # Both put input into a terminal.
    Denied("ioctl", EPERM, Argument(1, values=(_TIOCSTI, _TIOCLINUX))),
    # Sockets to the machine below, if this one is virtual.
    Denied("socket", EAFNOSUPPORT, Argument(0, values=(_AF_VSOCK,))),
    Denied("unshare", EPERM, Argument(0, any_of=NEW_NAMESPACES | CLONE_NEWTIME)),
)
_ALWAYS: Final = tuple(
    Denied(name) for name in NUMBERS if name not in {each.name for each in _CONDITIONAL}
)
DENIED: Final = (*_ALWAYS, *_CONDITIONAL)
# Sockets that can take the place of TCP ones: Landlock does not restrict the ports of these.
DENIED_WITH_PORTS: Final = (
    Denied("socket", EPROTONOSUPPORT, Argument(2, values=(_IPPROTO_MPTCP,))),
    Denied("socket", EAFNOSUPPORT, Argument(0, values=(_AF_SMC,))),
)
