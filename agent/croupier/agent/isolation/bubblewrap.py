"""Bubblewrap: the tool that makes namespaces for a task, and a trial of what it can do here."""

from __future__ import annotations

import os
import select
import signal
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from croupier.agent.isolation.image_tools import find_tool
from croupier.agent.shim import run_file
from croupier.agent.shim.build import Shim
from croupier.agent.shim.start import Channels, start_shim
from croupier.model.errors import Unavailable

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
class Bubblewrap:
    """The tool, and how it is used on this machine.

    Attributes:
        path: of the program.
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

        Args:
            view: arguments for its file system.
            inside: the sandbox, options of the shim inside, "--", and the task's words.
            has_network: whether it has the machine's network, rather than none.
            has_filter: whether the shim passes a filter of system calls.
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
        """Run a trivial program in a box whose sandbox is `directory`. Blocks for 5 s at most.

        Raises:
            Unavailable: if that fails, with the reason.
        """
        user = (f"user={_NO_USER}",) if self.by_root else ()
        inside = (str(directory), *user, "--", "/bin/sh", "-c", "exit 0")
        words = self.command(view, inside, has_network=has_network)
        try:
            why = _run(self.shim, directory, words)
        except OSError as error:
            why = error.strerror or str(error)
        if why:
            raise Unavailable(f"{self.path} does not work here: {why}")


def find_bubblewrap() -> str:
    """Return the path of the tool.

    Raises:
        Unavailable: if it is not installed.
    """
    path = find_tool("bwrap")
    if not path:
        raise Unavailable("bwrap (bubblewrap) is not installed")
    return path


def _run(shim: Shim, directory: Path, words: Sequence[str]) -> str:
    """Run a box; return why it failed, or an empty text."""
    path = directory / "run"
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        with tempfile.TemporaryFile(dir=directory) as output:
            channels = Channels(null, output.fileno(), output.fileno(), null)
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
        os.close(null)
        path.unlink(missing_ok=True)
