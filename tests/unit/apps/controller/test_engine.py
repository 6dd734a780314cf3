"""The engine of the applications: calls that fail, lost answers, tasks that are not wanted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from croupier.apps.controller import engine as engine_module
from croupier.apps.controller.engine import Handover
from croupier.apps.controller.outcomes import Outcome
from croupier.apps.job_file.task_spec import BESIDE
from croupier.cli.flags import LOCAL
from croupier.model.task import TaskState, TaskStatus
from croupier.sdk import (
    CroupierError,
    InvalidRequest,
    NotFound,
    Resources,
    Task,
    Unavailable,
)
from tests.harness.app_engine import RecordedEngine
from tests.harness.eventually import eventually

UNIT = Resources.parse("cpus:1")


class Scripted(RecordedEngine):
    """Hands over the tasks of `wanted`."""

    def __init__(self) -> None:
        super().__init__(LOCAL, "f", "*", keep_s=60)
        self.wanted: list[str] = []
        self.open: set[str] = set()
        self.ends: list[tuple[str, Outcome]] = []
        self.stopped = asyncio.Event()

    async def run(self) -> None:
        await self.stopped.wait()

    async def stop(self, teardown: bool = False) -> None:
        self.stopped.set()

    def is_open(self, task_id: str) -> bool:
        return task_id in self.open

    def take(self) -> list[Handover]:
        taken, self.wanted = self.wanted, []
        self.open.update(taken)
        return [(Task(["x"], resources=UNIT, task_id=each), ()) for each in taken]

    def on_end(self, status: TaskStatus, outcome: Outcome, _: CroupierError | None) -> None:
        self.open.discard(status.task_id)
        self.ends.append((status.task_id, outcome))


@pytest.fixture
async def engine(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scripted]:
    monkeypatch.setattr(engine_module, "AGAIN_S", 0.01)
    made = Scripted()
    yield made
    made.end()
    if made.over.done():
        made.over.exception()


async def test_an_answer_that_the_connection_lost_is_asked_for_again(engine: Scripted) -> None:
    engine.open.add("a")
    engine.ask_about(["a"])
    await engine.on_subscribed("F")
    await eventually(lambda: engine.calls == [("reconcile", "a")])
    await engine.on_subscribed("F")
    await eventually(lambda: engine.calls == [("reconcile", "a")] * 2)
    await engine.tell("a", TaskState.UNKNOWN)
    await engine.on_subscribed("F")
    engine.wanted.append("b")
    engine.wake()
    await eventually(lambda: engine.calls[2:] == [("submit", "b")])
    assert engine.ends == [("a", Outcome.NEVER_RAN)]


async def test_a_task_beside_another_one_is_not_asked_about(engine: Scripted) -> None:
    engine.fails = [Unavailable("no answer")]
    engine.wanted += ["a", f"a{BESIDE}proxy"]
    await engine.on_subscribed("F")
    await eventually(lambda: engine.ids("reconcile") == ["a"])
    await engine.tell("a", TaskState.FINISHED)
    await engine.tell(f"a{BESIDE}proxy", TaskState.FINISHED)
    await engine.on_subscribed("F")
    engine.wanted.append("b")
    engine.wake()
    await eventually(lambda: engine.ids("submit")[2:] == ["b"])
    assert engine.ids("reconcile") == ["a"]


async def test_calls_without_an_answer_are_made_again(engine: Scripted) -> None:
    engine.fails = [Unavailable("no answer") for _ in range(4)]
    engine.wanted.append("a")
    await engine.on_subscribed("F")
    await eventually(lambda: engine.calls == [("submit", "a"), *[("reconcile", "a")] * 4])
    await engine.tell("a", TaskState.RUNNING)
    engine.fails = [Unavailable("no answer") for _ in range(2)]
    engine.calls.clear()
    engine.end_task("a")
    await eventually(lambda: engine.calls == [("kill", "a")] * 3)


async def test_a_kill_of_a_task_that_the_master_does_not_know_asks_about_it(
    engine: Scripted,
) -> None:
    engine.open.add("a")
    engine.fails = [NotFound("no such task")]
    engine.end_task("a")
    await engine.on_subscribed("F")
    await eventually(lambda: engine.calls == [("kill", "a"), ("reconcile", "a")])


async def test_a_task_that_is_not_wanted_is_killed(engine: Scripted) -> None:
    await engine.on_subscribed("F")
    await engine.tell("old", TaskState.RUNNING)
    await eventually(lambda: engine.calls == [("kill", "old")])
    await engine.tell("old", TaskState.KILLED)
    assert engine.ends == []


async def test_another_error_of_a_call_ends_the_command(engine: Scripted) -> None:
    engine.fails = [InvalidRequest("no such role")]
    engine.wanted.append("a")
    await engine.on_subscribed("F")
    with pytest.raises(InvalidRequest, match="no such role"):
        await asyncio.wait_for(engine.over, 30)


async def test_an_error_of_work_beside_the_session_ends_the_command(engine: Scripted) -> None:
    async def fail() -> None:
        raise OSError("a broken display")

    async with engine.serving(fail()):
        with pytest.raises(OSError, match="a broken display"):
            await asyncio.wait_for(asyncio.shield(engine.over), 30)
    assert engine.stopped.is_set()
    assert not engine.has_session


async def test_the_end_of_the_session_ends_the_command(engine: Scripted) -> None:
    engine.stopped.set()
    async with engine.serving():
        with pytest.raises(Unavailable, match="the session with the master ended"):
            await asyncio.wait_for(asyncio.shield(engine.over), 30)
