"""The framework of a batch, with the calls to the master recorded and answered by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from croupier.apps.batch.batch_run import BatchCommand
from croupier.apps.batch.display import Display
from croupier.apps.batch.job import batch_of
from croupier.apps.batch.machine import BatchTasks, NodeState
from croupier.apps.batch.plan import JobPlan
from croupier.apps.batch.runner import MAX_QUEUED, Runner
from croupier.apps.batch.state import opened
from croupier.apps.controller.store import StateError
from croupier.apps.job_file.section import section_of_text
from croupier.cli.flags import LOCAL
from croupier.model.task import Reason, TaskState
from croupier.sdk import (
    Conflict,
    CroupierError,
    InvalidRequest,
    TaskVerdict,
    Unavailable,
    equals,
)
from tests.harness.app_engine import RecordedEngine
from tests.harness.eventually import eventually


class Scripted(RecordedEngine, Runner):
    """A runner whose calls are recorded; tasks are stored before they are submitted."""

    def answered(self, name: str, *ids: str) -> list[TaskVerdict]:
        if name == "submit":
            active = {row.name for row in self._state.tasks() if row.state is NodeState.ACTIVE}
            found = [task.name for task in map(self.machine.find, ids) if task is not None]
            assert len(found) == len(ids)
            assert active.issuperset(found)
        return super().answered(name, *ids)


@asynccontextmanager
async def running(path: Path, text: str, *, resume: bool = False) -> AsyncIterator[Scripted]:
    """Run the job, which the cluster admits as `F`."""
    with opened(path / "s.sqlite") as state:
        plan = JobPlan(batch_of(section_of_text(text), "job"))
        machine = BatchTasks(plan, state.tasks() if resume else ())
        runner = Scripted(machine, state, LOCAL, framework_id="", keep_s=60)
        try:
            await runner.on_subscribed("F")
            yield runner
        finally:
            runner.end()
            if runner.over.done():
                runner.over.exception()
            runner.machine.check()


ONE = "[tasks.a]\nshell = 'x'\n"
PAUSED = "backoff = {initial = 0.01, jitter = 0}\n"


async def test_tasks_are_submitted_as_they_become_ready(tmp_path: Path) -> None:
    text = ONE + "[tasks.b]\nshell = 'x'\nafter = 'a'\nname = 'bee'"
    async with running(tmp_path, text) as runner:
        await eventually(lambda: runner.ids("submit") == ["a.0.1"])
        await runner.tell("a.0.1", TaskState.STAGING)
        await runner.tell("a.0.1", TaskState.RUNNING)
        assert (runner.running, runner.queued) == ({0}, set())
        await runner.tell("a.0.1", TaskState.FINISHED, exit_code=0)
        await eventually(lambda: runner.ids("submit") == ["a.0.1", "b.0.1"])
        assert not runner.over.done()
        await runner.tell("b.0.1", TaskState.FINISHED, exit_code=0)
        await asyncio.wait_for(runner.over, 30)
        assert {row.name: row.state for row in runner._state.tasks()} == {
            "a": NodeState.DONE,
            "b": NodeState.DONE,
        }


async def test_at_most_a_thousand_tasks_wait_in_the_master(tmp_path: Path) -> None:
    async with running(tmp_path, ONE + "array = 3000") as runner:
        await eventually(lambda: len(runner.ids("submit")) == MAX_QUEUED)
        calls = len(runner.submitted)
        for n in range(MAX_QUEUED // 2 - 1):
            await runner.tell(f"a.{n}.1", TaskState.RUNNING)
        assert len(runner.submitted) == calls, "none are handed over one by one"
        await runner.tell(f"a.{MAX_QUEUED // 2}.1", TaskState.RUNNING)
        await eventually(lambda: len(runner.ids("submit")) == MAX_QUEUED + MAX_QUEUED // 2)
        assert len(runner.queued) == MAX_QUEUED
        assert len(runner.submitted) == calls + 1


async def test_max_active_bounds_what_the_cluster_has(tmp_path: Path) -> None:
    async with running(tmp_path, "max_active = 2\n" + ONE + "array = 5") as runner:
        await eventually(lambda: len(runner.ids("submit")) == 2)
        await runner.tell("a.0.1", TaskState.RUNNING)
        await runner.tell("a.0.1", TaskState.FINISHED)
        await eventually(lambda: runner.ids("submit") == ["a.0.1", "a.1.1", "a.2.1"])


async def test_calls_are_divided_by_constraints(tmp_path: Path) -> None:
    text = """
        [tasks.a]
        shell = "x"
        constraints = ["rack equals r1"]
        [tasks.b]
        shell = "x"
        array = 6
    """
    async with running(tmp_path, text) as runner:
        await eventually(lambda: len(runner.ids("submit")) == 7)
        assert runner.submitted[0] == (["a.0.1"], (equals("rack", "r1"),))
        assert [(len(listed), on) for listed, on in runner.submitted[1:]] == [(6, ())]


async def test_a_failed_attempt_is_tried_again_under_another_id(tmp_path: Path) -> None:
    reasons: list[str] = []
    async with running(tmp_path, ONE + "retries = 1\n" + PAUSED) as runner:
        runner.on_failed = lambda _task, _status, reason: reasons.append(reason)
        await eventually(lambda: runner.ids("submit") == ["a.0.1"])
        await runner.tell("a.0.1", TaskState.FAILED, exit_code=3)
        await eventually(lambda: runner.ids("submit") == ["a.0.1", "a.0.2"])
        await runner.tell("a.0.1", TaskState.FAILED, exit_code=3)  # repeated: no effect
        assert runner.machine.tasks[0].failures == 1
        await runner.tell("a.0.2", TaskState.FAILED, exit_code=4)
        await asyncio.wait_for(runner.over, 30)
        (row,) = runner._state.tasks()
        assert (row.state, row.launches, row.failures) == (NodeState.FAILED, 2, 2)
        assert (row.reason, row.agent_id) == ("exit code 4", "A1")
        assert reasons == ["exit code 3", "exit code 4"]


@pytest.mark.parametrize("error", [Conflict("full"), Unavailable("later")])
async def test_a_full_master_is_asked_again(
    tmp_path: Path, error: CroupierError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("croupier.apps.controller.engine.AGAIN_S", 0.01)
    async with running(tmp_path, ONE) as runner:
        runner.errors = {f"a.0.{n}": error for n in range(1, 40)}
        for n in range(1, 40):
            await eventually(lambda n=n: runner.ids("reconcile")[-1:] == [f"a.0.{n}"])  # type: ignore[misc]
            await runner.tell(f"a.0.{n}", TaskState.UNKNOWN)
        await eventually(lambda: runner.ids("submit")[-1:] == ["a.0.40"])
        task = runner.machine.tasks[0]
        assert (task.failures, task.drops) == (0, 0)


async def test_a_task_that_the_master_refuses_has_failed(tmp_path: Path) -> None:
    async with running(tmp_path, ONE + "retries = 3\n") as runner:
        runner.errors["a.0.1"] = InvalidRequest("no agent can run it")
        await eventually(lambda: runner.ids("reconcile") == ["a.0.1"])
        await runner.tell("a.0.1", TaskState.UNKNOWN)
        await asyncio.wait_for(runner.over, 30)
        assert runner.machine.tasks[0].reason == "no agent can run it"
        assert runner.ids("submit") == ["a.0.1"]


async def test_a_task_that_the_master_has_already_runs_on(tmp_path: Path) -> None:
    async with running(tmp_path, ONE) as runner:
        runner.errors["a.0.1"] = Conflict("the framework has such a task")
        await eventually(lambda: runner.ids("reconcile") == ["a.0.1"])
        await runner.tell("a.0.1", TaskState.RUNNING)
        await runner.tell("a.0.1", TaskState.FINISHED)
        await asyncio.wait_for(runner.over, 30)
        assert runner.ids("submit") == ["a.0.1"]


async def test_a_call_without_an_answer_is_reconciled(tmp_path: Path) -> None:
    async with running(tmp_path, ONE + "array = 2\n" + PAUSED) as runner:
        runner.fails.append(Unavailable("no answer within 30 s"))
        await eventually(lambda: runner.ids("reconcile") == ["a.0.1", "a.1.1"])
        await runner.tell("a.0.1", TaskState.UNKNOWN, decided_in_s=5.0)
        await runner.tell("a.1.1", TaskState.UNKNOWN)
        await eventually(lambda: runner.ids("submit") == ["a.0.1", "a.1.1", "a.1.2"])
        await runner.tell("a.0.1", TaskState.RUNNING)
        # It was queued after all: it must not run beside the later launch.
        await runner.tell("a.1.1", TaskState.STAGING)
        await eventually(lambda: runner.ids("kill") == ["a.1.1"])
        assert runner.running == {0}


async def test_a_result_that_is_lost_is_a_failure(tmp_path: Path) -> None:
    async with running(tmp_path, ONE) as runner:
        await eventually(lambda: runner.ids("submit") == ["a.0.1"])
        await runner.tell("a.0.1", TaskState.RUNNING)
        await runner.tell("a.0.1", TaskState.UNREACHABLE)
        assert (runner.running, runner.machine.counts[NodeState.ACTIVE]) == (set(), 1)
        await runner.tell("a.0.1", TaskState.UNKNOWN)
        await asyncio.wait_for(runner.over, 30)
        assert runner.machine.tasks[0].state is NodeState.FAILED


async def test_a_killed_process_is_continued(tmp_path: Path) -> None:
    text = ONE + "array = 4\n" + PAUSED
    async with running(tmp_path, text) as runner:
        await eventually(lambda: len(runner.ids("submit")) == 4)
        await runner.tell("a.0.1", TaskState.FINISHED)
        await runner.tell("a.1.1", TaskState.RUNNING)
    async with running(tmp_path, text, resume=True) as runner:
        await eventually(lambda: runner.ids("reconcile") == ["a.1.1", "a.2.1", "a.3.1"])
        await runner.tell("a.1.1", TaskState.RUNNING)
        await runner.tell("a.2.1", TaskState.FINISHED)
        await runner.tell("a.3.1", TaskState.UNKNOWN)  # the call had not reached the master
        await eventually(lambda: runner.ids("submit") == ["a.3.2"])
        await runner.tell("a.1.1", TaskState.FINISHED)
        await runner.tell("a.3.2", TaskState.FINISHED)
        await asyncio.wait_for(runner.over, 30)


async def test_stop_withdraws_queued_tasks_and_kills_the_others(tmp_path: Path) -> None:
    async with running(tmp_path, ONE + "array = 4\n[tasks.b]\nshell = 'x'\nafter = 'a'") as runner:
        await eventually(lambda: len(runner.ids("submit")) == 4)
        await runner.tell("a.0.1", TaskState.RUNNING)
        runner.errors["a.1.1"] = Conflict("was placed already")
        stopping = asyncio.create_task(runner.stop_tasks())
        await eventually(lambda: set(runner.ids("kill")) == {"a.0.1", "a.1.1"})
        assert runner.ids("withdraw")[:3] == ["a.1.1", "a.2.1", "a.3.1"]
        ended = {"reason": Reason.KILLED_BY_FRAMEWORK}
        await runner.tell("a.0.1", TaskState.FAILED, exit_code=143)
        await runner.tell("a.1.1", TaskState.FINISHED)
        await runner.tell("a.2.1", TaskState.KILLED, agent_id="", **ended)
        await runner.tell("a.3.1", TaskState.KILLED, agent_id="", **ended)
        await asyncio.wait_for(stopping, 30)
        states = {row.name: row.state for row in runner._state.tasks()}
        assert states == {
            "a[0]": NodeState.WAITING,
            "a[1]": NodeState.DONE,
            "a[2]": NodeState.WAITING,
            "a[3]": NodeState.WAITING,
        }
        assert len(runner.ids("submit")) == 4


async def test_a_full_disk_ends_the_run_and_acknowledges_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, ONE) as runner:
        await eventually(lambda: runner.ids("submit") == ["a.0.1"])
        connection = runner._state._connection
        connection.execute("CREATE TABLE filler (x)")
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        long = "x" * 1_000_000
        # The SDK acknowledges an update only if its handler returns.
        with pytest.raises(StateError, match="full"):
            await runner.tell("a.0.1", TaskState.FAILED, reason=Reason.TIMED_OUT, message=long)
        with pytest.raises(StateError, match=r"cannot write the state .*full"):
            await runner.over


async def test_a_display_that_fails_ends_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Serving(Scripted):
        is_stopped: asyncio.Event

        async def run(self) -> None:
            await self.is_stopped.wait()

        async def stop(self, teardown: bool = False) -> None:
            self.is_stopped.set()

    def fail(*_: object) -> None:
        raise OSError("a broken terminal")

    monkeypatch.setattr(Display, "show", fail)
    with opened(tmp_path / "s.sqlite") as state:
        plan = JobPlan(batch_of(section_of_text(ONE), "job"))
        runner = Serving(BatchTasks(plan), state, LOCAL, framework_id="", keep_s=60)
        runner.is_stopped = asyncio.Event()
        batch = BatchCommand(plan, state, LOCAL)
        with pytest.raises(OSError, match="a broken terminal"):
            await asyncio.wait_for(batch.serve(runner), 30)


GANG = ONE + "nodes = 3\nretries = 1\n" + PAUSED
FIRST = ["a.0.1.0", "a.0.1.1", "a.0.1.2"]
AGAIN = ["a.0.2.0", "a.0.2.1", "a.0.2.2"]
ENDED = {"reason": Reason.GANG_ENDED}


async def test_a_gang_is_done_when_all_its_members_have_finished(tmp_path: Path) -> None:
    async with running(tmp_path, GANG + "[tasks.b]\nshell = 'x'\nafter = 'a'") as runner:
        await eventually(lambda: runner.ids("submit") == FIRST)
        for task_id in FIRST:
            await runner.tell(task_id, TaskState.RUNNING)
        assert (runner.running, runner.queued) == ({0}, set())
        for task_id in FIRST[:2]:
            await runner.tell(task_id, TaskState.FINISHED, exit_code=0)
        assert runner.machine.counts[NodeState.DONE] == 0
        await runner.tell(FIRST[2], TaskState.FINISHED, exit_code=0)
        await eventually(lambda: runner.ids("submit") == [*FIRST, "b.0.1"])


async def test_a_gang_fails_once_as_the_member_that_failed_and_is_run_again(tmp_path: Path) -> None:
    async with running(tmp_path, GANG) as runner:
        failures: list[str] = []
        runner.on_failed = lambda task, status, reason: failures.append(reason)
        await eventually(lambda: runner.ids("submit") == FIRST)
        await runner.tell(FIRST[0], TaskState.KILLED, exit_code=0, **ENDED)
        await runner.tell(FIRST[1], TaskState.FINISHED, exit_code=0)
        await runner.tell(FIRST[2], TaskState.FAILED, exit_code=3)
        await eventually(lambda: runner.ids("submit") == [*FIRST, *AGAIN])
        assert failures == ["rank 2: exit code 3"]
        # The others are told to end once the agent of one is unreachable.
        await runner.tell(AGAIN[0], TaskState.RUNNING)
        await runner.tell(AGAIN[1], TaskState.UNREACHABLE)
        for task_id in (AGAIN[0], AGAIN[2]):
            await runner.tell(task_id, TaskState.KILLED, exit_code=143, **ENDED)
        await asyncio.wait_for(runner.over, 30)
        assert failures[1:] == ["rank 1: unreachable"]
        assert runner.machine.tasks[0].state is NodeState.FAILED
        await runner.tell(AGAIN[1], TaskState.RUNNING)
        await eventually(lambda: runner.ids("kill") == [AGAIN[1]])


@pytest.mark.parametrize(
    ("last", "state"), [(ENDED, NodeState.FAILED), ({"exit_code": 0}, NodeState.DONE)]
)
async def test_of_a_gang_that_is_taken_over_the_last_members_tell_how_it_ended(
    tmp_path: Path, last: dict[str, Reason | int], state: NodeState
) -> None:
    text = GANG.replace("retries = 1", "retries = 0")
    async with running(tmp_path, text) as runner:
        await eventually(lambda: runner.ids("submit") == FIRST)
        await runner.tell(FIRST[1], TaskState.FINISHED, exit_code=0)
    async with running(tmp_path, text, resume=True) as runner:
        await eventually(lambda: runner.ids("reconcile") == FIRST)
        await runner.tell(FIRST[1], TaskState.UNKNOWN)  # its end was acknowledged
        await runner.tell(
            FIRST[0], TaskState.KILLED if last is ENDED else TaskState.FINISHED, **last
        )
        await runner.tell(
            FIRST[2], TaskState.KILLED if last is ENDED else TaskState.FINISHED, **last
        )
        await asyncio.wait_for(runner.over, 30)
        assert runner.machine.tasks[0].state is state


async def test_a_gang_that_the_master_did_not_get_is_handed_over_again(tmp_path: Path) -> None:
    async with running(tmp_path, GANG) as runner:
        await eventually(lambda: runner.ids("submit") == FIRST)
    async with running(tmp_path, GANG, resume=True) as runner:
        for task_id in FIRST:
            await runner.tell(task_id, TaskState.UNKNOWN)
        await eventually(lambda: runner.ids("submit") == AGAIN)
        assert runner.machine.tasks[0].failures == 0


async def test_members_are_ended_when_the_master_has_lost_one(tmp_path: Path) -> None:
    async with running(tmp_path, GANG.replace("retries = 1", "retries = 0")) as runner:
        failures: list[str] = []
        runner.on_failed = lambda task, status, reason: failures.append(reason)
        await eventually(lambda: runner.ids("submit") == FIRST)
        for task_id in FIRST:
            await runner.tell(task_id, TaskState.RUNNING)
        await runner.tell(FIRST[1], TaskState.UNKNOWN)
        await eventually(lambda: set(runner.ids("kill")) == {FIRST[0], FIRST[2]})
        for task_id in (FIRST[0], FIRST[2]):
            await runner.tell(task_id, TaskState.KILLED, reason=Reason.KILLED_BY_FRAMEWORK)
        await asyncio.wait_for(runner.over, 30)
        assert failures == [
            "rank 1: its result is lost: the cluster does not know the task any more"
        ]


async def test_a_gang_that_the_master_starts_again_goes_on_as_the_same_attempt(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, ONE + "nodes = 3\nrestarts = 1\n") as runner:
        await eventually(lambda: runner.ids("submit") == FIRST)
        for state, more in (
            (TaskState.RUNNING, {}),
            (TaskState.QUEUED, ENDED),
            (TaskState.RUNNING, {}),
            (TaskState.FINISHED, {"exit_code": 0}),
        ):
            for task_id in FIRST:
                await runner.tell(task_id, state, **more)
        await asyncio.wait_for(runner.over, 30)
        assert runner.machine.tasks[0].state is NodeState.DONE
        assert runner.ids("submit") == FIRST


async def test_stop_ends_all_members_of_a_gang(tmp_path: Path) -> None:
    async with running(tmp_path, GANG) as runner:
        await eventually(lambda: runner.ids("submit") == FIRST)
        for task_id in FIRST:
            await runner.tell(task_id, TaskState.RUNNING)
        stopping = asyncio.create_task(runner.stop_tasks())
        await eventually(lambda: set(runner.ids("kill")) == set(FIRST))
        await runner.tell(FIRST[0], TaskState.KILLED, reason=Reason.KILLED_BY_FRAMEWORK)
        for task_id in FIRST[1:]:
            await runner.tell(task_id, TaskState.KILLED, exit_code=143, **ENDED)
        await asyncio.wait_for(stopping, 30)
        assert runner.machine.tasks[0].state is NodeState.READY
