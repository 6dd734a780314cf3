"""What a task in a box sees of the machine, as arguments of bubblewrap.

| Path | In the box |
|---|---|
| /usr, /bin, /sbin, /lib*, /etc, /nix | the machine's, read-only |
| directories of `--visible-paths` | the machine's, read-only; by default /opt and /srv |
| the sandbox | at its own path, the only place of the machine that the task can write to |
| files of its secrets | at their own path, read-only |
| /tmp (also as /var/tmp), /dev/shm | private, in memory, empty; half of the memory limit each |
| /dev | null, zero, full, random, urandom, tty and terminals of its own |
| /proc | only the processes of the box; settings of the kernel cannot be changed |
| /sys | /sys/devices/system only, read-only: cpus and memory nodes |
| all else, such as /root, /home, /run, /var, /srv of others, the work dir | not there |

Hidden inside visible directories: the work dir, the agent's own credentials and, for a task that
is root, files of the machine's passwords and keys.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Each is a directory, or a link such as /bin -> usr/bin.
_SYSTEM: Final = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "nix")
_CPUS: Final = "/sys/devices/system"
_RESOLVER: Final = Path("/etc/resolv.conf")
# A program that is root could read them without any capability.
_OF_ROOT: Final = ("shadow", "shadow-", "gshadow", "gshadow-", "ssl/private", "ssh", "croupier")
# A program that is root could write to them without any capability; bubblewrap protects others.
_SETTINGS: Final = ("/proc/sys", "/proc/sysrq-trigger", "/proc/fs")
_OPEN: Final = ("--perms", "0755", "--dir")
_WORK_DIR_BYTES: Final = 65536


@dataclass(frozen=True, slots=True)
class View:
    """The files of the machine that tasks in boxes see.

    Attributes:
        visible: further directories.
        work_dir: of the agent; hidden.
        secrets: files of the agent's credentials, hidden from tasks of the same user.
        root: of the machine; another one in tests.
    """

    visible: tuple[Path, ...]
    work_dir: Path
    secrets: tuple[Path, ...] = ()
    root: Path = Path("/")

    def words(
        self, sandbox: str, tmp_bytes: int, *, is_own_account: bool, further: Iterable[str] = ()
    ) -> tuple[str, ...]:
        """Return the arguments that make the file system of a box.

        Args:
            sandbox: its path, absolute.
            tmp_bytes: the size of /tmp, and of /dev/shm.
            is_own_account: whether the task is of the agent's user, and can read its files.
            further: directories that the task needs; visible, read-only.
        """
        size = str(tmp_bytes)
        words = [*self._system(), "--proc", "/proc", "--dev", "/dev"]
        words += ["--perms", "1777", "--size", size, "--tmpfs", "/dev/shm"]  # noqa: S108
        # The terminals and /dev/shm stay writable.
        words += ["--remount-ro", "/dev", "--perms", "1777", "--size", size, "--tmpfs", "/tmp"]  # noqa: S108
        words += [*_OPEN, "/run", *_OPEN, "/var", "--symlink", "/tmp", "/var/tmp"]  # noqa: S108
        words += ["--symlink", "/run", "/var/run"]
        shown = [str(path) for path in self.visible if path.is_dir()]
        for path in shown:
            words += [*_parents(path), "--ro-bind-try", path, path]
        words += self._hidden(is_own_account=is_own_account)
        for path in further:
            words += [*_parents(path), "--ro-bind", path, path]
        words += [*_parents(sandbox), "--bind", sandbox, sandbox]
        return (*words, "--remount-ro", "/")

    def _system(self) -> Iterator[str]:
        for name in _SYSTEM:
            path = self.root / name
            if path.is_symlink():
                yield from ("--symlink", str(path.readlink()), f"/{name}")
            elif path.is_dir():
                yield from ("--ro-bind", str(path), f"/{name}")
        yield from (*_parents(_CPUS), "--ro-bind-try", _CPUS, _CPUS)
        resolver = _RESOLVER.resolve()
        if resolver.is_relative_to("/run"):
            # Without it, names of machines cannot be looked up.
            yield from (*_parents(str(resolver)), "--ro-bind-try", str(resolver), str(resolver))

    def _hidden(self, *, is_own_account: bool) -> Iterator[str]:
        work_dir = self.work_dir.resolve()
        if self._shows(work_dir):
            size = str(_WORK_DIR_BYTES)
            yield from ("--perms", "0711", "--size", size, "--tmpfs", str(work_dir))
        if not is_own_account:
            return
        of_root: list[Path] = []
        if os.geteuid() == 0:
            of_root = [Path("/etc", name) for name in _OF_ROOT]
            for setting in _SETTINGS:
                yield from ("--ro-bind-try", setting, setting)
        for path in (*of_root, *self.secrets):
            found = path.resolve()
            if not self._shows(found) or found.is_relative_to(work_dir):
                continue
            if found.is_dir():
                yield from ("--perms", "0555", "--tmpfs", str(found), "--remount-ro", str(found))
            elif found.exists():
                yield from ("--ro-bind", "/dev/null", str(found))

    def _shows(self, path: Path) -> bool:
        """Return whether the path is below a directory of the machine that the box shows."""
        shown = [Path("/", name) for name in _SYSTEM] + [each.resolve() for each in self.visible]
        return any(path.is_relative_to(each) for each in shown)


def _parents(path: str) -> Iterator[str]:
    """Make the directories above a path with permissions for all users.

    Those that bubblewrap makes itself are for its own user only.
    """
    for parent in reversed(Path(path).parents[:-1]):
        yield from (*_OPEN, str(parent))
