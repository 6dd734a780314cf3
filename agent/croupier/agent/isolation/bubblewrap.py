"""Bubblewrap, the tool that makes namespaces for a task; a trial of it; what a task in a box sees.

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
import select
import signal
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from croupier.agent.directories import closing
from croupier.agent.shim import run_file
from croupier.agent.shim.build import Shim
from croupier.agent.shim.start import start_shim
from croupier.model.errors import Unavailable

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
TRIAL_S: Final = 5.0
_NAMESPACES: Final = (
    *("--unshare-pid", "--as-pid-1", "--die-with-parent"),
    *("--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
)
# A user namespace gives the rights to make the others. The task can make no further ones.
_OF_USER: Final = ("--unshare-user", "--disable-userns")
# The descriptor at which the shim passes the filter of system calls; see box.h.
_FILTER: Final = ("--seccomp", "5")
# The shim passes itself at this descriptor.
_SELF: Final = "/proc/self/fd/4"
_NO_USER: Final = "65534:65534:"


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
        self,
        writable: Iterable[str],
        tmp_bytes: int,
        *,
        is_own_account: bool,
        further: Iterable[str] = (),
    ) -> tuple[str, ...]:
        """Return the arguments that make the file system of a box.

        The task may write to the `writable` directories; its sandbox is one of them. /tmp and
        /dev/shm have `tmp_bytes` each. A task with `is_own_account` is of the agent's
        user. The task sees `further` directories, read-only.
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
        for path in writable:
            words += [*_parents(path), "--bind", path, path]
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
    """Make the directories above a path for all users; bubblewrap would for its own user only."""
    for parent in reversed(Path(path).parents[:-1]):
        yield from (*_OPEN, str(parent))


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """The tool, and how it is used on this machine.

    Attributes:
        by_root: whether it runs as root, and the shim inside becomes the task's user. Else it runs
            as that user, in a user namespace.
        shim: runs inside as process 1.
    """

    path: str
    by_root: bool
    shim: Shim

    def command(
        self,
        view: Sequence[str],
        inside: Sequence[str],
        *,
        has_network: bool = True,
        has_filter: bool = False,
    ) -> tuple[str, ...]:
        """Return the command line of a box.

        `inside` is the sandbox, options of the shim inside, "--", and the task's words. With
        `has_filter`, the shim passes a filter of system calls.
        """
        return (
            self.path,
            *_NAMESPACES,
            *(() if self.by_root else _OF_USER),
            *(() if has_network else ("--unshare-net",)),
            *(_FILTER if has_filter else ()),
            *view,
            "--",
            _SELF,
            "--inside",
            *inside,
        )

    def try_out(self, view: Sequence[str], directory: Path, *, has_network: bool = True) -> None:
        """Run a trivial program in a box at `directory`, for 5 s; raises Unavailable on failure."""
        user = (f"user={_NO_USER}",) if self.by_root else ()
        inside = (str(directory), *user, "--", "/bin/sh", "-c", "exit 0")
        words = self.command(view, inside, has_network=has_network)
        try:
            why = _run(self.shim, directory, words)
        except OSError as error:
            why = error.strerror or str(error)
        if why:
            raise Unavailable(f"{self.path} does not work here: {why}")


def _run(shim: Shim, directory: Path, words: Sequence[str]) -> str:
    """Run a box; return why it failed, or an empty text."""
    path = directory / "run"
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        with closing(null), tempfile.TemporaryFile(dir=directory) as output:
            channels = (null, output.fileno(), output.fileno(), null)
            given = [str(directory), "boxed", "--", *words]
            pid, pidfd = start_shim(shim, path, given, {}, channels)
            try:
                is_late = not select.select([pidfd], [], [], TRIAL_S)[0]
            finally:
                os.close(pidfd)
                with suppress(ProcessLookupError):
                    # It is not reaped yet. The kernel kills the box with it.
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            if is_late:
                return f"it takes longer than {TRIAL_S:g} s"
            end = run_file.read_path(path).end
            if end is not None and end.exit_code == 0:
                return ""
            output.seek(0)
            return output.read().decode(errors="replace").strip()[-500:] or "it failed"
    finally:
        path.unlink(missing_ok=True)
