"""The agent as the only work of its process."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from croupier.agent.app import AgentDaemon
from croupier.agent.recover import check_used, clean_up
from croupier.process.logging import get_logger

if TYPE_CHECKING:  # cyclopts
    from croupier.agent.config import AgentConfig

_log = get_logger("croupier.agent")

_OOM_SCORE_FILE = Path("/proc/self/oom_score_adj")
# -1000 would spare the agent and its shims however much memory they use.
OWN_OOM_SCORE = -900
_PR_SET_DUMPABLE = 4


async def run_agent(
    config: AgentConfig, stop: asyncio.Event, read: Callable[[], AgentConfig]
) -> None:
    """Run an agent until `stop` is set, or clean up after one; `read` is for reloads.

    Raises:
        CroupierError: if it cannot start or write its records, or if another agent takes over
            its id.
    """
    if config.recover == "cleanup":
        check_used(config.work_dir)
        await clean_up(config.work_dir)
        return
    lower_own_score()
    hide_own_memory()
    agent = AgentDaemon(config)
    reloader = agent.reloader(read)
    try:
        await agent.start()
        reloader.start()
        await agent.run(stop)
    finally:
        await reloader.stop()
        await agent.stop()


def lower_own_score() -> bool:
    """Make the kernel kill this process after all others; return whether it allows that.

    The shim raises the score of each task (shim.c), which needs no privilege. To lower its own
    score the agent needs CAP_SYS_RESOURCE, which root has. Its shims inherit the score.
    """
    try:
        if int(_OOM_SCORE_FILE.read_text()) > OWN_OOM_SCORE:
            _OOM_SCORE_FILE.write_text(str(OWN_OOM_SCORE))
    except (OSError, ValueError) as error:
        _log.info("oom_score_not_lowered", error=str(error))
        return False
    return True


def hide_own_memory() -> None:
    """Make this process not dumpable. The programs that it executes are dumpable again.

    Such a process belongs to root under /proc, so tasks of the same user can neither trace it nor
    read its memory, its environment, with credentials, and its descriptors. It also leaves no core
    dump.
    """
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
