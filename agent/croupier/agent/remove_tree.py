"""Removes what tasks have left, however they have left it.

Done by `rm`, and not in Python: what a task makes may be nested deeper than a recursion or a
path may go, hold millions of files, or be directories that their own user may not write to.
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

# What takes longer goes on at the next start.
LIMIT_S = 600.0
# Of what a command has to say, which may be a line for each of a million files.
LAST_BYTES = 4096
_KILLED_S = 1.0


async def remove(paths: Sequence[Path]) -> int:
    """Remove files and directories with all that is in them; how many are gone.

    All are of one directory. No link is followed, not even in place of that directory. What
    cannot be removed is logged, and stays; so does what is left when this is cancelled.
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
    """What was complained of last, if of anything; `parent` is where the paths are."""
    await _run(parent, "rm", "-rf", "--", *(path.name for path in paths))
    left = [path.name for path in paths if _is_there(path)]
    if not left:
        return ""
    # Directories that may not be written to are emptied by their owner all the same.
    await _run(parent, "chmod", "-R", "u+rwX", "--", *left)
    return await _run(parent, "rm", "-rf", "--", *left)


async def _run(cwd: str, *words: str) -> str:
    """The last line of what the command complained of; killed if this is cancelled."""
    # Whatever the agent's own PATH is; and words that do not depend on who started it.
    environment = {"PATH": os.defpath, "LC_ALL": "C"}
    process = await asyncio.create_subprocess_exec(
        *words, cwd=cwd, env=environment, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE
    )
    assert process.stderr is not None
    said = b""
    try:
        while chunk := await process.stderr.read(LAST_BYTES):
            said = (said + chunk)[-LAST_BYTES:]
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            with suppress(TimeoutError):
                async with asyncio.timeout(_KILLED_S):
                    await process.wait()
    lines = said.decode(errors="replace").splitlines()
    return lines[-1][:500] if lines else ""


def _is_there(path: Path) -> bool:
    return os.path.lexists(path)
