"""The isolation of a task's processes that needs no tool and no control group.

What it enforces, by options of the shim:

- umask 027, no core dumps, at most `files` open files, and no file larger than the disk limit. If
  the task has a uid of its own, at most `pids` processes and threads.
- No program gives the task more rights (`no_new_privs`), so a task that is not root never has a
  capability, and its bounding set is empty. A task that is root keeps a few, which administration
  inside its own files needs.
- A Landlock domain: the task can neither trace processes outside of it nor read their memory and
  environment, even those of its own user. From version 6 on it cannot signal them or connect to
  their abstract Unix sockets. With `--undealt-ports refuse` (version 4), it can bind only the TCP
  ports that were dealt to it.
- A filter of system calls that change the machine or are seldom needed and often attacked.

For a task in namespaces of its own, the shim inside obeys the options. A task with an image starts
through a runtime that needs mounts and capabilities. It gets the limits and the ports here; the
runtime does the rest inside.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Final

from croupier.agent.isolation.isolator import Isolator, Launch, Setting, limits_of
from croupier.agent.isolation.seccomp import filter_bytes, is_supported
from croupier.model.errors import InvalidRequest
from croupier.model.isolation import Feature, Limits
from croupier.model.limits import MIB
from croupier.process.durable_files import replace_file

_CREATE_RULESET: Final = 444
_VERSION: Final = 1
_SCOPES, _SCOPES_SINCE = 0x3, 6
_BIND_TCP, _BIND_TCP_SINCE = 0x1, 4
# To make devices and to move files to other directories: one right is needed for a domain without
# scopes. All are allowed, but the kernel refuses changes of mounts then.
_FILES, _FILES_SINCE = 0x2840, 2
_CHOWN, _DAC_OVERRIDE, _FOWNER, _FSETID, _KILL = 0, 1, 3, 4, 5
_SETGID, _SETUID, _SETPCAP, _NET_BIND_SERVICE = 6, 7, 8, 10
_KEPT: Final = (_CHOWN, _DAC_OVERRIDE, _FOWNER, _FSETID, _KILL, _SETGID, _SETUID, _NET_BIND_SERVICE)
ROOT_KEPT: Final = sum(1 << number for number in _KEPT)
_STATUS: Final = Path("/proc/self/status")
UMASK: Final = 0o027
_MOST_PORT: Final = 65535
_PREFIX: Final = "seccomp-"
_ACTIONS: Final = Path("/proc/sys/kernel/seccomp/actions_avail")


def landlock_version() -> int:
    """Return the version of Landlock in this kernel; 0: it has none, or does not use it."""
    call = ctypes.CDLL(None).syscall
    return max(0, int(call(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_long(0), _VERSION)))


def domain_option(version: int, ports: Iterable[tuple[int, int]] | None = None) -> str:
    """Return the option for a task's own domain, empty without; `ports` are all it can bind."""
    scopes = _SCOPES if version >= _SCOPES_SINCE else 0
    files = _FILES if _FILES_SINCE <= version < _SCOPES_SINCE else 0
    if not (scopes or files):
        return ""
    if ports is None:
        return f"landlock={files:x}:0:{scopes:x}"
    return f"landlock={files:x}:{_BIND_TCP:x}:{scopes:x}:{_ranges(ports)}"


def _ranges(ports: Iterable[tuple[int, int]]) -> str:
    return ",".join(f"{first}-{last}" for first, last in ports)


class OwnCapabilities:
    """The capabilities of this process: the `bounding` set, and whether it `can_drop` some."""

    def __init__(self, status: str | None = None) -> None:
        """Read them, or take them from the text of /proc/PID/status."""
        lines = (_STATUS.read_text() if status is None else status).splitlines()
        found = dict(line.split(":", 1) for line in lines if line.startswith("Cap"))
        self.bounding = int(found["CapBnd"], 16)
        self.can_drop = bool(int(found["CapEff"], 16) >> _SETPCAP & 1)

    def option(self, uid: int) -> str | None:
        """Return the shim's option for a task of this user; None if there is nothing to do.

        Without CAP_SETPCAP the bounding set stays. A user that is not root then has no
        capabilities all the same, and with `no-new-privs` can get none.
        """
        if self.can_drop:
            return f"bounding={ROOT_KEPT if uid == 0 else 0:x}"
        return f"bounding={self.bounding:x}" if uid == 0 else None


class ProcessIsolator(Isolator):
    """Restricts each task by options of its shim, which kills and measures it."""

    name = "process"

    def __init__(
        self,
        defaults: Limits,
        directory: Path,
        *,
        has_own_uids: bool = False,
        are_ports_refused: bool = False,
    ) -> None:
        """Use `defaults` for tasks that name no limits, and write the filter to `directory`.

        With `has_own_uids`, a task without a user has a uid that no other live task has. With
        `are_ports_refused`, only dealt TCP ports can be bound. Raises InvalidRequest if ports are
        to be refused, and the kernel cannot do that.
        """
        self._landlock = landlock_version()
        if are_ports_refused and self._landlock < _BIND_TCP_SINCE:
            raise InvalidRequest(
                "--undealt-ports refuse needs Landlock 4 in the kernel (Linux 6.7); it has"
                f" {self._landlock}"
            )
        self._defaults, self._are_ports_refused = defaults, are_ports_refused
        self._capabilities = OwnCapabilities()
        self._filter = write_filter(directory, has_ports=are_ports_refused)
        features = {Feature.FILES}
        if are_ports_refused:
            features.add(Feature.PORTS)
        if has_own_uids:
            features.add(Feature.PIDS)
        self.features = frozenset(features)

    def prepare(self, launch: Launch) -> Launch:
        """Add the options."""
        limits = limits_of(launch.info, self._defaults)
        options = [*self._limits(launch, limits), f"umask={UMASK:o}"]
        if not launch.info.isolation.image:
            options += self._restrictions(launch)
        elif self._are_ports_refused:
            # This domain leaves changes of mounts free.
            domain = f"landlock=0:{_BIND_TCP:x}:0:{_ranges(_ports(launch))}"
            options += ["no-new-privs", domain]
        return replace(launch, options=(*launch.options, *options))

    def join(self, launch: Launch) -> Launch:
        """Add the same options."""
        return self.prepare(launch)

    def _limits(self, launch: Launch, limits: Limits) -> Iterator[str]:
        yield _limit(resource.RLIMIT_CORE, 0)
        if limits.files:
            yield _limit(resource.RLIMIT_NOFILE, limits.files)
        if limits.disk:
            yield _limit(resource.RLIMIT_FSIZE, limits.disk * MIB // 1000)
        if limits.pids and launch.user is not None and launch.user.is_own:
            yield _limit(resource.RLIMIT_NPROC, limits.pids)

    def _restrictions(self, launch: Launch) -> Iterator[str]:
        uid = os.geteuid() if launch.user is None else launch.user.uid
        bounding = self._capabilities.option(uid)
        if bounding:
            yield bounding
        yield "no-new-privs"
        ports = _ports(launch) if self._are_ports_refused else None
        domain = domain_option(self._landlock, ports)
        if domain:
            yield domain
        if self._filter is not None:
            yield f"seccomp={self._filter}"


def build_process(setting: Setting) -> ProcessIsolator:
    """Return the isolator of the level process. Raises as that does."""
    return ProcessIsolator(
        setting.flags.default_limits,
        setting.work_dir,
        has_own_uids=setting.has_own_uids,
        are_ports_refused=setting.flags.undealt_ports == "refuse",
    )


def write_filter(directory: Path, *, has_ports: bool) -> Path | None:
    """Write the filter of system calls to a file of its own, atomically; remove older ones.

    Return None if the kernel or the kind of machine has no filters.
    """
    if not is_supported() or not _ACTIONS.exists():
        return None
    content = filter_bytes(has_ports=has_ports)
    path = directory.absolute() / f"{_PREFIX}{sha256(content).hexdigest()[:16]}"
    replace_file(path, content)
    for other in directory.glob(f"*{_PREFIX}*"):
        if other.name != path.name and other.name.lstrip(".").startswith(_PREFIX):
            other.unlink(missing_ok=True)
    return path


def _limit(number: int, most: int) -> str:
    return f"limit={number}:{most}:{most}"


def _ports(launch: Launch) -> list[tuple[int, int]]:
    """Return the dealt ports that are valid; no process can bind others."""
    ranges = launch.info.resources.ranges.get("ports", ())
    return [(first, min(last, _MOST_PORT)) for first, last in ranges if first <= _MOST_PORT]
