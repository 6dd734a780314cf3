"""A driver of the master whose store, peers and observer record their calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from croupier.master.allocator import Allocator
from croupier.master.core.effects import Close, Send, SessionId
from croupier.master.core.events import Register, Subscribe
from croupier.master.core.facts import Fact
from croupier.master.core.records import Record
from croupier.master.core.registry import Registry
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.master.driver import BATCH, Driver
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.resources import Resources
from croupier.process.clock import SystemClock


class Recorder:
    """Store, peers and observer of a driver; records commits and effects in order."""

    def __init__(self) -> None:
        self.performed: list[object] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Exception | None = None

    async def load(self) -> Registry:
        return Registry()

    async def commit(self, records: Sequence[Record]) -> None:
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        self.performed += records

    async def close(self) -> None:
        pass

    def send(self, effect: Send) -> None:
        self.performed.append(effect.message)

    def close_session(self, effect: Close) -> None:
        self.performed.append(effect)

    def stepped(self, seconds: float, events: int) -> None:
        assert seconds >= 0
        assert 0 < events <= BATCH

    def allocated(self, seconds: float, waited_s: float) -> None:
        assert seconds >= 0
        assert waited_s >= 0

    def committed(self, seconds: float) -> None:
        assert seconds >= 0

    def acknowledged(self, framework_id: FrameworkId, task_id: TaskId) -> None: ...

    def happened(self, fact: Fact) -> None:
        pass


class RecordedPeers:
    """The part of the recorder that receives effects."""

    def __init__(self, recorder: Recorder) -> None:
        self.send = recorder.send
        self.close = recorder.close_session


def make_driver(recorder: Recorder) -> Driver:
    state = State("m", Settings(), Allocator())
    return Driver(state, recorder, RecordedPeers(recorder), recorder, SystemClock())


def subscribe(session: int) -> Subscribe:
    return Subscribe(SessionId(session), FrameworkId(""), "f", (Role("*"),), "client")


def register(session: int) -> Register:
    total = Resources.parse("cpus:4;mem:4GB")
    return Register(SessionId(session), AgentId(""), f"h{session}", total, {})


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
