"""What agents have left on a work dir that no agent knows any more: ended and forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

import structlog

from croupier.agent.checkpoint import clear
from croupier.agent.sandbox import Sandboxes
from croupier.agent.shim.build import interpreted_shim
from croupier.agent.supervisor import Supervisor
from croupier.agent.work_dir import WorkDir
from croupier.model.errors import Unavailable
from croupier.model.ids import FrameworkId, TaskId

_log = structlog.get_logger("croupier.agent")

# For shims to end all that descends from their tasks.
END_S = 10.0
_NOBODY = FrameworkId("nobody")


async def end_strays(work_dir: WorkDir, known: Collection[str] = ()) -> int:
    """End and forget all runs that are not `known`; how many lived.

    Raises:
        OSError: if that cannot be done.
    """
    sandboxes = Sandboxes(work_dir.sandboxes)
    supervisor = Supervisor(work_dir.runs, sandboxes, interpreted_shim(), _ignore, _ignore)
    with closing(supervisor):
        # A shim that lives knows best what descends from its task.
        for run in await asyncio.to_thread(_names, work_dir.runs):
            if run not in known:
                supervisor.adopt((_NOBODY, TaskId(run)), run)
        ended = len(supervisor)
        await supervisor.end(END_S)
        await asyncio.to_thread(supervisor.forget_strays, known)
    return ended


async def clean_up(directory: Path) -> None:
    """End every task that an earlier agent has left on the work dir, and forget that agent.

    Sandboxes stay; the next agent removes them in time.

    Raises:
        CroupierError: if the work dir cannot be used, or an agent uses it.
    """
    work_dir = await WorkDir.open(directory)
    try:
        ended = await end_strays(work_dir)
        clear(work_dir.path)
    except OSError as error:
        raise Unavailable(f"cannot clean {work_dir.path}: {error.strerror}") from error
    finally:
        work_dir.close()
    _log.info("cleaned_up", work_dir=str(work_dir.path), tasks=ended)


def _names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def _ignore(_: object) -> None:
    """Nobody is to be told."""
