"""Removes directory trees that tasks have left.

`rm` does this, not Python: a task's files may be nested deeper than a recursion or a path may go,
number millions, or be in directories without write permission.
"""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from croupier.agent.directories import directory
from croupier.process.logging import get_logger

_log = get_logger("croupier.agent")

# A removal that takes longer continues at the next start.
LIMIT_S = 600.0
# Bytes kept of a command's errors: it may print a line for each of a million files.
LAST_BYTES = 4096
_KILLED_S = 1.0


async def remove_trees(paths: Sequence[Path]) -> int:
    """Remove files and directories of one directory; return how many were removed.

    No link is followed, not even in place of that directory. Files that cannot be removed are
    logged and stay, as do those that are left when this is cancelled.
    """
    present = [path for path in paths if _is_there(path)]
    if not present:
        return 0
    try:
        with directory(present[0].parent) as parent:
            async with asyncio.timeout(LIMIT_S):
                why = await _remove(present, f"/proc/self/fd/{parent}")
    except TimeoutError:
        why = f"took longer than {LIMIT_S:g} s"
    except OSError as error:
        why = f"{error.filename or 'rm'}: {error.strerror}"
    left = [path for path in present if _is_there(path)]
    for path in left:
        _log.warning("sandbox_not_removed", path=str(path), error=why)
    return len(present) - len(left)


async def _remove(paths: Sequence[Path], parent: str) -> str:
    """Remove `paths`, which are in `parent`; return the last error, or an empty text."""
    await _run(parent, "rm", "-rf", "--", *(path.name for path in paths))
    left = [path.name for path in paths if _is_there(path)]
    if not left:
        return ""
    # The owner may empty directories without write permission by changing it.
    await _run(parent, "chmod", "-R", "u+rwX", "--", *left)
    return await _run(parent, "rm", "-rf", "--", *left)


async def _run(cwd: str, *words: str) -> str:
    """Run a command, killed if this is cancelled; return the last line of its errors."""
    # Independent of the agent's PATH and language.
    environment = {"PATH": os.defpath, "LC_ALL": "C"}
    process = await asyncio.create_subprocess_exec(
        *words, cwd=cwd, env=environment, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE
    )
    assert process.stderr is not None
    errors = b""
    try:
        while chunk := await process.stderr.read(LAST_BYTES):
            errors = (errors + chunk)[-LAST_BYTES:]
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            with suppress(TimeoutError):
                async with asyncio.timeout(_KILLED_S):
                    await process.wait()
    lines = errors.decode(errors="replace").splitlines()
    return lines[-1][:500] if lines else ""


def _is_there(path: Path) -> bool:
    return os.path.lexists(path)
