"""A scripted master, and agents that register with it, in this process or in their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from croupier.agent.app import AgentDaemon
from croupier.agent.config import AgentConfig, OnStop, Recovery
from croupier.agent.isolation.flags import IsolationFlags
from croupier.agent.probe import GivenResources, read_boot_id
from croupier.agent.recover import clean_up
from croupier.net.address import Address
from tests.harness.agent_defaults import SAME_USER
from tests.harness.agent_process import AgentProcess
from tests.harness.agents import UNISOLATED
from tests.harness.compiled_shim import place_shim
from tests.harness.scripted_master import ScriptedMaster

RESOURCES = "cpus:4;mem:1GB;disk:1GB;ports:[31000-31099]"


@dataclass
class Serving:
    """An agent in this process, and the task that runs it."""

    agent: AgentDaemon
    stop: asyncio.Event
    task: asyncio.Task[None]

    async def end(self) -> None:
        """Stop the agent as SIGTERM would, and raise its error if it has one."""
        self.stop.set()
        async with asyncio.timeout(15):
            await self.task


Start = Callable[..., Awaitable[Serving]]


@pytest.fixture
async def master() -> AsyncIterator[ScriptedMaster]:
    scripted = ScriptedMaster()
    await scripted.start()
    yield scripted
    await scripted.stop()


@pytest.fixture
async def start(master: ScriptedMaster, tmp_path: Path) -> AsyncIterator[Start]:
    """Start agents in this process; they are stopped with the test."""
    started: list[Serving] = []

    async def begin(
        resources: str = RESOURCES,
        masters: tuple[Address, ...] = (),
        on_stop: OnStop = "end",
        recover: Recovery = "strict",
        boot_id: Callable[[], str] = read_boot_id,
        isolate: IsolationFlags = UNISOLATED,
    ) -> Serving:
        config = AgentConfig(
            master=masters or (master.address,),
            http=Address("127.0.0.1", 0),
            work_dir=tmp_path / "work",
            resources=GivenResources.parse(resources),
            hostname="host-1",
            on_stop=on_stop,
            recover=recover,
            isolate=isolate,
            users=SAME_USER,
        )
        place_shim(config.work_dir)
        agent = AgentDaemon(config, boot_id=boot_id)
        try:
            await agent.start()
        except BaseException:
            await agent.stop()
            raise
        stop = asyncio.Event()

        async def serve() -> None:
            try:
                await agent.run(stop)
            finally:
                await agent.stop()

        serving = Serving(agent, stop, asyncio.create_task(serve()))
        started.append(serving)
        return serving

    yield begin
    for serving in started:
        serving.stop.set()
    await asyncio.gather(*(serving.task for serving in started), return_exceptions=True)
    await clean_up(tmp_path / "work")


@pytest.fixture
async def serving(start: Start, master: ScriptedMaster) -> Serving:
    """Return a registered agent in this process."""
    serving = await start()
    await master.agent()
    return serving


@asynccontextmanager
async def registered(
    master: ScriptedMaster, folder: Path, *flags: str, isolation: str = "process"
) -> AsyncIterator[AgentProcess]:
    """Run a registered agent in a process of its own."""
    log = folder / "agent.log"
    agent = AgentProcess(
        master.address, folder / "work", log, RESOURCES, *flags, isolation=isolation
    )
    agent.start()
    try:
        await master.agent()
        yield agent
    finally:
        agent.end()
        await clean_up(agent.work_dir)


@pytest.fixture
async def process(master: ScriptedMaster, tmp_path: Path) -> AsyncIterator[AgentProcess]:
    """Return a registered agent in a process of its own."""
    async with registered(master, tmp_path) as agent:
        yield agent
