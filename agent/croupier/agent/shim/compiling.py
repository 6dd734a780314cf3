"""Compiles a C program: one file with its headers. The build of a wheel loads this file alone."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

COMPILERS: Final = ("cc", "gcc", "clang", "tcc")
# The limit of all attempts together.
COMPILE_S = 20.0
_CHECK_S = 5.0
STATIC: Final = ("-O2", "-s", "-static")
# A static program starts faster, but not every machine has a static C library.
FLAGS: Final = (STATIC, ("-O2", "-s"), ())


def program_name(source: Path) -> str:
    """Return the name of the program of `source`: with a digest of all that it is made of."""
    sources = b"".join(each.read_bytes() for each in (source, *sorted(source.parent.glob("*.h"))))
    digest = hashlib.sha256(sources + platform.machine().encode()).hexdigest()[:16]
    return f"{source.stem}-{digest}"


def compile_program(
    path: Path, source: Path, version: bytes, flags_of: Sequence[tuple[str, ...]] = FLAGS
) -> str:
    """Compile `source` to `path`, atomically; return an error, or an empty text.

    The program prints `version`. Each of `flags_of` is tried. Blocks, 20 s at most.
    """
    compilers = [found for name in COMPILERS if (found := shutil.which(name))]
    why = f"no C compiler was found ({', '.join(COMPILERS)})"
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


def works(path: Path, version: bytes) -> bool:
    """Return whether the program is the agent's own, can be executed and prints its version."""
    try:
        return _is_ours(path) and print_version((str(path),), _CHECK_S) == version
    except (OSError, subprocess.SubprocessError):
        return False


def print_version(argv: Sequence[str], timeout_s: float) -> bytes:
    """Start a program without arguments; return the version that it prints.

    Raises:
        OSError: if it cannot be started.
        subprocess.SubprocessError: if it fails or takes longer.
    """
    null = subprocess.DEVNULL
    return subprocess.run(
        argv, stdin=null, capture_output=True, timeout=timeout_s, check=True
    ).stdout


def _is_ours(path: Path) -> bool:
    """Return whether only this user can have written the file."""
    try:
        found = path.lstat()
    except OSError:
        return False
    writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not writable
