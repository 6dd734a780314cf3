"""The agent as the only work of its process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from croupier.agent.app import AgentDaemon
from croupier.agent.cleanup import check_used, clean_up
from croupier.agent.oom_score import lower_own_score
from croupier.agent.own_memory import hide_own_memory

if TYPE_CHECKING:  # cyclopts
    from croupier.agent.config import AgentConfig


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
