"""The core of an agent with two executors, behind its unix socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from croupier.agent.core import effects as fx
from croupier.agent.core import events as ev
from croupier.agent.core.events import Event
from croupier.agent.executors.service import ExecutorServer
from croupier.agent.executors.streams import Streams
from croupier.model.agent_orders import LaunchTask
from croupier.model.executor import (
    ExecutorSpec,
)
from croupier.model.ids import DEFAULT_ROLE, TaskId
from croupier.model.isolation import Feature
from croupier.model.task import Command, TaskState
from croupier.process.clock import SystemClock
from croupier.process.inbox import Inbox
from tests.harness.agent_core import F, World, task

KEY = (F, TaskId("e1"))
OTHER = (F, TaskId("e2"))


class Agent:
    """The core of an agent with two executors, behind both doors."""

    def __init__(self, work_dir: Path) -> None:
        self.world = World()
        self.world.state.features = frozenset({Feature.EXECUTORS, Feature.MESOS_EXECUTORS})
        for key, api in ((KEY, ""), (OTHER, "mesos")):
            info = replace(task(key[1]), executor=ExecutorSpec(api=api))
            self.world.do(LaunchTask(F, info, DEFAULT_ROLE), ev.Started(key, 7))
        self.task("t1", KEY[1])
        self.task("t2", OTHER[1])
        self.inbox: Inbox[Event] = Inbox()
        self.dropped: list[str] = []
        self.streams = Streams(
            self.world.state, self.inbox, work_dir, SystemClock(), self.dropped.append
        )
        self.server = ExecutorServer(self.streams)
        self.uid = 0
        self.is_stalled = False

    def task(self, task_id: str, executor_id: str) -> None:
        info = replace(task(task_id), command=Command(), executor_id=TaskId(executor_id))
        self.world.do(LaunchTask(F, info, DEFAULT_ROLE))

    def token(self, key: tuple[Any, Any] = KEY) -> str:
        return self.streams.token_of(self.world.state.tasks[key].run)

    async def drive(self) -> None:
        while True:
            await self.inbox.wait(None)
            if self.is_stalled:
                await asyncio.sleep(0.01)
                continue
            before = len(self.world.effects)
            for event in self.inbox.take(1000):
                self.world.do(event)
            for effect in self.world.effects[before:]:
                if isinstance(effect, fx.ToExecutor | fx.CloseExecutor):
                    self.streams.perform(effect)

    def states(self, task_id: str) -> list[TaskState]:
        moved = [each.status for each in self.world.effects if isinstance(each, fx.Moved)]
        return [status.state for status in moved if status.task_id == task_id]


@asynccontextmanager
async def serving(work_dir: Path) -> AsyncIterator[Agent]:
    agent = Agent(work_dir)
    agent.server.start()
    driving = asyncio.create_task(agent.drive())
    try:
        yield agent
    finally:
        driving.cancel()
        await agent.server.close()
