"""Builds the shim: compiled once if there is a C compiler, else interpreted.

Both follow the protocol in shim.c. The compiled shim starts in well under a millisecond and takes
about 70 KB; the interpreted one takes about 10 ms and 3 MB for each task.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from croupier.process.logging import get_logger

_log = get_logger("croupier.agent")

COMPILERS = ("cc", "gcc", "clang", "tcc")
# The limit of all attempts together.
COMPILE_S = 20.0
_CHECK_S = 5.0
_VERSION = b"croupier-shim 2\n"
_SOURCE = Path(__file__).with_name("shim.c")
_HEADERS = sorted(Path(__file__).parent.glob("*.h"))
_FALLBACK = Path(__file__).with_name("fallback.py")
# A static program starts faster, but not every machine has a static C library.
_FLAGS = (("-O2", "-s", "-static"), ("-O2", "-s"), ())


@dataclass(frozen=True, slots=True)
class Shim:
    """A program that supervises one task.

    Attributes:
        kind: compiled or interpreted.
        argv: its command line, before the arguments of the run.
        waits: whether it can start one task after the other.
        group: the file by which it enters its control group; None: it stays in the agent's.
    """

    kind: Literal["c", "python"]
    argv: tuple[str, ...]
    waits: bool = False
    group: Path | None = None

    def enter_group(self, pid: int) -> None:
        """Move a process of the shim that was just started; one that cannot be moved may stay."""
        if self.group is not None:
            with suppress(OSError):
                self.group.write_text(str(pid))

    def print_version(self, timeout_s: float) -> bytes:
        """Start the shim without arguments; return its version.

        Raises:
            OSError: if it cannot be started.
            subprocess.SubprocessError: if it fails or takes longer.
        """
        null = subprocess.DEVNULL
        command = subprocess.run(
            self.argv, stdin=null, capture_output=True, timeout=timeout_s, check=True
        )
        return command.stdout


def interpreted_shim() -> Shim:
    """Return the shim that needs no compiler."""
    return Shim("python", (sys.executable, "-S", "-E", "-I", str(_FALLBACK)))


def prepare_shim(directory: Path) -> Shim:
    """Return the compiled shim, or the interpreted one if compiling fails.

    Blocks while it compiles, 20 s at most. This happens once for each version of the source: the
    program is kept in `directory`, and older ones are removed.
    """
    source = b"".join(path.read_bytes() for path in (_SOURCE, *_HEADERS))
    name = hashlib.sha256(source + platform.machine().encode()).hexdigest()[:16]
    path = directory / f"shim-{name}"
    if not works(path, _VERSION):
        why = compile_program(path, _SOURCE, _VERSION)
        if why:
            _log.warning("shim_not_compiled", reason=why)
            return interpreted_shim()
    for other in directory.glob("shim-*"):
        if other != path and other.is_file():
            other.unlink(missing_ok=True)
    return Shim("c", (str(path),), waits=True)


def compile_program(
    path: Path, source: Path, version: bytes, flags_of: Sequence[tuple[str, ...]] = _FLAGS
) -> str:
    """Compile `source` to `path`, atomically; return an error, or an empty text.

    The program prints `version`. Each of `flags_of` is tried. Blocks, 20 s at most.
    """
    compilers = [found for name in COMPILERS if (found := shutil.which(name))]
    why = "no C compiler was found"
    deadline = time.monotonic() + COMPILE_S
    for compiler in compilers:
        for flags in flags_of:
            try:
                with tempfile.TemporaryDirectory(prefix="shim-new-", dir=path.parent) as scratch:
                    made = Path(scratch) / path.name
                    words = [compiler, "-std=gnu11", *flags, "-o", str(made), str(source)]
                    why = _run(words, deadline)
                    if not why and works(made, version):
                        made.rename(path)
                        _log.info(
                            "shim_compiled", program=path.name, compiler=compiler, flags=list(flags)
                        )
                        return ""
                    why = why or f"what {compiler} makes cannot be run in {path.parent}"
            except OSError as error:
                why = str(error)
            if time.monotonic() >= deadline:
                return why
    return why


def _run(words: list[str], deadline: float) -> str:
    """Run a compiler; return an empty text if it succeeds, else the end of its output."""
    # A file, not a pipe: a child of the compiler may hold it open after the compiler is killed.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            code = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            # The compiler is not reaped yet, so its group still is its own.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"{words[0]} takes too long"
        output.seek(0)
        text = output.read().decode(errors="replace").strip()[-500:]
    return (text or f"{words[0]} failed") if code else ""


def _is_ours(path: Path) -> bool:
    """Return whether only this user can have written the file."""
    try:
        found = path.lstat()
    except OSError:
        return False
    writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not writable


def works(path: Path, version: bytes) -> bool:
    """Return whether the program is the agent's own, can be executed and prints its version."""
    try:
        return _is_ours(path) and Shim("c", (str(path),)).print_version(_CHECK_S) == version
    except (OSError, subprocess.SubprocessError):
        return False
