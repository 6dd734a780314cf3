"""Removes what tasks have left, however they have left it.

Done by `rm`, and not in Python: what a task makes may be nested deeper than a recursion or a
path may go, hold millions of files, or be directories that their own user may not write to.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import structlog

_log = structlog.get_logger("croupier.agent")

# What takes longer goes on at the next start.
LIMIT_S = 600.0


def remove(paths: Sequence[Path]) -> int:
    """Remove files and directories with all that is in them; how many are gone.

    Blocks. No link is followed. What cannot be removed is logged, and stays.
    """
    present = [path for path in paths if _is_there(path)]
    why = _run("rm", "-rf", "--", *map(str, present))
    left = [path for path in present if _is_there(path)]
    if left:
        # Directories that may not be written to are emptied by their owner all the same.
        _run("chmod", "-R", "u+rwX", "--", *map(str, left))
        why = _run("rm", "-rf", "--", *map(str, left))
        left = [path for path in left if _is_there(path)]
    for path in left:
        _log.warning("sandbox_not_removed", path=str(path), error=why)
    return len(present) - len(left)


def _run(*words: str) -> str:
    """What the command complained of last, if of anything."""
    # Whatever the agent's own PATH is; and words that do not depend on who started it.
    environment = {"PATH": os.defpath, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return f"took longer than {LIMIT_S:g} s"
    except OSError as error:
        return f"cannot run {words[0]}: {error.strerror}"
    lines = done.stderr.decode(errors="replace").splitlines()
    return lines[-1][:500] if lines else ""


def _is_there(path: Path) -> bool:
    return os.path.lexists(path)
