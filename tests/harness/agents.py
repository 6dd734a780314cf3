"""Real agents in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from croupier.agent.app import AgentDaemon
from croupier.agent.config import AgentConfig
from croupier.agent.isolation.flags import IsolationFlags
from croupier.agent.probe import GivenResources
from croupier.agent.recover import clean_up
from croupier.net.address import Address
from tests.harness.agent_defaults import SAME_USER
from tests.harness.masters import ANY_PORT

# Of agents of tests that are not about isolation.
UNISOLATED = IsolationFlags(isolation=("process",))
RESOURCES = "cpus:4;mem:1GB;disk:1GB;ports:[31000-31099]"


@asynccontextmanager
async def running_agent(
    work_dir: Path, *masters: Address, **options: Any
) -> AsyncIterator[AgentDaemon]:
    """Run an agent on a free port; its tasks end with the context."""
    options = {
        "hostname": "host-1",
        "resources": GivenResources.parse(RESOURCES),
        "isolate": UNISOLATED,
        "users": SAME_USER,
        "http": ANY_PORT,
        **options,
    }
    agent = AgentDaemon(AgentConfig(master=masters, work_dir=work_dir, **options))
    stop = asyncio.Event()
    try:
        await agent.start()
        serving = asyncio.create_task(agent.run(stop))
        try:
            yield agent
        finally:
            stop.set()
            await asyncio.gather(serving, return_exceptions=True)
    finally:
        await agent.stop()
        await clean_up(work_dir)
