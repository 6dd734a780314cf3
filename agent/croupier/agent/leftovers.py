"""`--recover=cleanup`: what an agent has left on a work dir is ended and forgotten."""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog

from croupier.agent.checkpoint import clear
from croupier.agent.shim.strays import end_strays
from croupier.agent.work_dir import LOCK, WorkDir
from croupier.model.errors import InvalidRequest, Unavailable

_log = structlog.get_logger("croupier.agent")


def check_used(directory: Path) -> None:
    """See whether an agent has ever used the work dir.

    Raises:
        InvalidRequest: if none has: it may be the wrong one.
    """
    if not (directory.expanduser() / LOCK).exists():
        raise InvalidRequest(f"{directory} is no agent's work dir: there is nothing to clean up")


async def clean_up(directory: Path) -> None:
    """End every task that an earlier agent has left on the work dir, and forget that agent.

    Sandboxes stay; the next agent removes them in time.

    Raises:
        CroupierError: if the work dir cannot be used, or an agent uses it.
    """
    work_dir = await WorkDir.open(directory)
    try:
        ended = 0
        if work_dir.runs.is_dir():
            ended = await asyncio.to_thread(end_strays, work_dir.runs, ())
        clear(work_dir.path)
    except OSError as error:
        raise Unavailable(f"cannot clean {work_dir.path}: {error.strerror}") from error
    finally:
        work_dir.close()
    _log.info("cleaned_up", work_dir=str(work_dir.path), tasks=ended)
