"""The shim as a program: a copy of that of the installation, or compiled from its sources.

Rule: an agent runs programs of its work dir only. So an upgrade, which replaces the files of the
package, leaves the agent that runs with the shim that it knows.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from croupier.agent.shim.compiling import FLAGS, compile_program, program_name, works
from croupier.model.errors import Unavailable
from croupier.process.logging import get_logger

_log = get_logger("croupier.agent")

_VERSION = b"croupier-shim 2\n"
_SOURCE = Path(__file__).with_name("shim.c")


@dataclass(frozen=True, slots=True)
class Shim:
    """A program that supervises one task.

    Attributes:
        argv: its command line, before the arguments of the run.
        waits: whether it starts one task after the other.
        group: the file by which it enters its control group; None: it stays in the agent's.
    """

    argv: tuple[str, ...]
    waits: bool = True
    group: Path | None = None

    def enter_group(self, pid: int) -> None:
        """Move a process of the shim that was just started; one that cannot be moved may stay."""
        if self.group is not None:
            with suppress(OSError):
                self.group.write_text(str(pid))


def prepare_shim(directory: Path) -> Shim:
    """Return the shim, which is kept in `directory`; those of other versions are removed.

    Blocks while it is compiled, 20 s at most: once for each version, and only if the installation
    has no program of its sources. Raises Unavailable if there is none.
    """
    try:
        path = provide(directory, _SOURCE, _VERSION)
    except Unavailable as error:
        raise Unavailable(
            f"the agent has no shim to start tasks with: {error}. Install a C compiler with the C"
            " library's headers, or Croupier from a wheel for this machine; the work dir must"
            " not be mounted noexec"
        ) from error
    for other in directory.glob("shim-*"):
        if other != path and other.is_file():
            other.unlink(missing_ok=True)
    return Shim((str(path),))


def provide(
    directory: Path, source: Path, version: bytes, flags_of: Sequence[tuple[str, ...]] = FLAGS
) -> Path:
    """Return the program of `source` in `directory`, made unless it was before.

    Raises Unavailable if it cannot be made.
    """
    name = program_name(source)
    path = directory / name
    if works(path, version):
        return path
    installed = source.with_name(name)
    if installed.exists() and _copy(installed, path, version):
        return path
    why = compile_program(path, source, version, flags_of)
    if why:
        raise Unavailable(why)
    _log.info("shim_compiled", program=path.name)
    return path


def _copy(program: Path, path: Path, version: bytes) -> bool:
    """Copy a program, atomically; return whether it works there."""
    with suppress(OSError), tempfile.TemporaryDirectory(prefix="shim-new-", dir=path.parent) as new:
        made = Path(shutil.copyfile(program, Path(new) / path.name))
        made.chmod(0o755)
        if works(made, version):
            made.rename(path)
            return True
    return False
