"""Landlock: rules of the kernel that a process takes on for itself and all its descendants.

A process in a Landlock domain can neither trace processes outside of it nor read their memory and
environment, even those of its own user. From version 6 on it cannot signal them or connect to
their abstract Unix sockets. From version 4 on, TCP ports that it may bind can be named.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Final

_CREATE_RULESET: Final = 444
_VERSION: Final = 1
_SCOPES, _SCOPES_SINCE = 0x3, 6
_BIND_TCP, _BIND_TCP_SINCE = 0x1, 4
# To make devices and to move files to other directories: one right is needed for a domain without
# scopes. All are allowed, but the kernel refuses changes of mounts then.
_FILES, _FILES_SINCE = 0x2840, 2


def landlock_version() -> int:
    """Return the version of Landlock in this kernel; 0: it has none, or does not use it."""
    call = ctypes.CDLL(None).syscall
    return max(0, int(call(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_long(0), _VERSION)))


def can_name_ports(version: int) -> bool:
    """Return whether TCP ports can be restricted."""
    return version >= _BIND_TCP_SINCE


def domain_option(version: int, ports: Iterable[tuple[int, int]] | None = None) -> str:
    """Return the shim's option for a domain of a task's own; empty if the kernel has none.

    With `ports`, only these ranges of TCP ports can be bound.
    """
    scopes = _SCOPES if version >= _SCOPES_SINCE else 0
    files = _FILES if _FILES_SINCE <= version < _SCOPES_SINCE else 0
    if not (scopes or files):
        return ""
    if ports is None:
        return f"landlock={files:x}:0:{scopes:x}"
    return f"landlock={files:x}:{_BIND_TCP:x}:{scopes:x}:{_ranges(ports)}"


def ports_option(ports: Iterable[tuple[int, int]]) -> str:
    """Return the shim's option that restricts TCP ports only; it leaves changes of mounts free."""
    return f"landlock=0:{_BIND_TCP:x}:0:{_ranges(ports)}"


def _ranges(ports: Iterable[tuple[int, int]]) -> str:
    return ",".join(f"{first}-{last}" for first, last in ports)
