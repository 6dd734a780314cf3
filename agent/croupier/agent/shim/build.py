"""The shim's program: compiled once where there is a C compiler, else interpreted.

Both keep the same protocol (shim.c tells it). The compiled one starts in well under a
millisecond and holds about 70 KB; the interpreted one takes about 10 ms and 3 MB for each task.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from croupier.process.logging import get_logger

_log = get_logger("croupier.agent")

COMPILERS = ("cc", "gcc", "clang", "tcc")
# For all attempts together.
COMPILE_S = 20.0
_CHECK_S = 5.0
_SAYS = b"croupier-shim 1\n"
_SOURCE = Path(__file__).with_name("shim.c")
_FALLBACK = Path(__file__).with_name("fallback.py")
# A static program needs no linking at each start; not every machine has the library for it.
_FLAGS = (("-O2", "-s", "-static"), ("-O2", "-s"), ())


@dataclass(frozen=True, slots=True)
class Shim:
    """A program that watches over one task.

    Attributes:
        kind: whether it was compiled or is interpreted.
        argv: the words to start it with, before its own.
    """

    kind: Literal["c", "python"]
    argv: tuple[str, ...]


def interpreted_shim() -> Shim:
    """The one that needs no compiler."""
    return Shim("python", (sys.executable, "-S", "-E", "-I", str(_FALLBACK)))


def prepare_shim(directory: Path) -> Shim:
    """The best shim that this machine can have; blocks while it is compiled, 20 s at most.

    That is done once for each version of the source: it is kept in `directory`, and older
    ones are removed.
    """
    source = _SOURCE.read_bytes()
    name = hashlib.sha256(source + platform.machine().encode()).hexdigest()[:16]
    path = directory / f"shim-{name}"
    if not _is_ours(path) or not _works(path):
        why = _compile(path)
        if why:
            _log.warning("shim_not_compiled", reason=why)
            return interpreted_shim()
    for other in directory.glob("shim-*"):
        if other != path and other.is_file():
            other.unlink(missing_ok=True)
    return Shim("c", (str(path),))


def _compile(path: Path) -> str:
    """Make the program at `path`, whole or not at all; if that fails, why."""
    compilers = [found for name in COMPILERS if (found := shutil.which(name))]
    why = "no C compiler was found"
    deadline = time.monotonic() + COMPILE_S
    for compiler in compilers:
        for flags in _FLAGS:
            try:
                with tempfile.TemporaryDirectory(prefix="shim-new-", dir=path.parent) as scratch:
                    made = Path(scratch) / path.name
                    words = [compiler, "-std=gnu11", *flags, "-o", str(made), str(_SOURCE)]
                    why = _run(words, deadline)
                    if not why and _works(made):
                        made.rename(path)
                        _log.info("shim_compiled", compiler=compiler, flags=list(flags))
                        return ""
                    why = why or f"what {compiler} makes cannot be run in {path.parent}"
            except OSError as error:
                why = str(error)
            if time.monotonic() >= deadline:
                return why
    return why


def _run(words: list[str], deadline: float) -> str:
    """Run a compiler; empty if it succeeds, else the end of what it says."""
    # A file and not a pipe: what a compiler starts may hold it open when it is killed.
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
        )
        try:
            code = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            # It is not reaped yet, so the group is its own.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"{words[0]} takes too long"
        said.seek(0)
        text = said.read().decode(errors="replace").strip()[-500:]
    return (text or f"{words[0]} failed") if code else ""


def _is_ours(path: Path) -> bool:
    """Whether nobody else can have put it there or changed it."""
    try:
        found = path.lstat()
    except OSError:
        return False
    writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not writable


def _works(path: Path) -> bool:
    """Whether it can be executed there and says what it should."""
    try:
        done = subprocess.run(
            [str(path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_CHECK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout == _SAYS
