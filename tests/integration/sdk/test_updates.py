"""Status updates: at least once, in order, acknowledged when handled."""

from __future__ import annotations

import pytest

from croupier.model.task import MASTER_SEQUENCE
from croupier.sdk import Reason, TaskState, TaskStatus, Unavailable
from croupier.sdk.testing import FakeMaster
from tests.harness.eventually import eventually
from tests.integration.sdk.recorder import Recorder, running, task


class Fragile(Recorder):
    """A framework that raises at the first update of a running task."""

    failed = 0

    async def on_update(self, status: TaskStatus) -> None:
        if status.state is TaskState.RUNNING and not self.failed:
            self.failed += 1
            raise ValueError("a bug")
        await super().on_update(status)


async def test_an_update_is_acknowledged_once_it_was_handled(
    master: FakeMaster, framework: Recorder
) -> None:
    await framework.launch(master, task("t1"))
    assert await master.update("t1", TaskState.RUNNING) == 1
    sequence = await master.update(
        "t1", TaskState.FAILED, reason=Reason.COMMAND_EXECUTOR_FAILED, exit_code=3
    )
    await master.acknowledged("t1", sequence)
    assert framework.states == [("t1", "RUNNING"), ("t1", "FAILED")]
    last = framework.statuses[-1]
    assert (last.exit_code, last.reason) == (3, Reason.COMMAND_EXECUTOR_FAILED)
    assert last.agent_id == "a1"


async def test_acknowledgements_of_one_turn_are_one_call() -> None:
    async with FakeMaster(auto_run=True) as master:
        framework = Recorder(master.address)
        async with running(framework, master):
            ids = [f"t{n}" for n in range(20)]
            await framework.launch(master, *(task(task_id) for task_id in ids))
            for task_id in ids:
                await master.acknowledged(task_id, 3)
            calls = [call for call in master.calls if call.kind == "acknowledge"]
            assert len(calls) <= 3
            assert len(framework.statuses) == 60


async def test_an_update_of_the_master_is_shown_and_not_acknowledged(
    master: FakeMaster, framework: Recorder
) -> None:
    await framework.launch(master, task("t1"))
    assert await master.update("t1", TaskState.UNREACHABLE, from_master=True) == 0
    await eventually(lambda: framework.states == [("t1", "UNREACHABLE")])
    await framework.revive()
    assert [call.kind for call in master.calls] == ["accept", "revive"]


async def test_an_end_reported_by_the_master_is_shown_once_and_acknowledged() -> None:
    async with FakeMaster(resend_s=0.05) as master:
        framework = Recorder(master.address)
        async with running(framework, master):
            await framework.launch(master, task("t1"))
            # As if the acknowledgement was lost, three times.
            for _ in range(3):
                sequence = await master.update("t1", TaskState.GONE, from_master=True)
                assert sequence == MASTER_SEQUENCE
                call = await master.next_call("acknowledge")
                assert call.updates == (("t1", MASTER_SEQUENCE),)
            assert framework.states == [("t1", "GONE")]


async def test_an_unknown_state_has_the_time_of_its_decision(
    master: FakeMaster, framework: Recorder
) -> None:
    await framework.launch(master, task("t1"))
    await master.update("t1", TaskState.UNKNOWN, from_master=True, decided_in_s=1.5)
    await eventually(lambda: framework.statuses)
    assert framework.statuses[0].decided_in_s == 1.5


async def test_a_failed_handler_gets_the_update_again(caplog: pytest.LogCaptureFixture) -> None:
    async with FakeMaster(resend_s=0.1) as master:
        framework = Fragile(master.address)
        async with running(framework, master):
            await framework.launch(master, task("t1"), task("t2"))
            await master.update("t1", TaskState.RUNNING)
            await master.update("t1", TaskState.FINISHED)
            await master.update("t2", TaskState.RUNNING)
            await master.acknowledged("t1", 2)
            await master.acknowledged("t2", 1)
            assert framework.states[0] == ("t2", "RUNNING"), (
                "updates of other tasks arrive meanwhile"
            )
            of_t1 = [state for task_id, state in framework.states if task_id == "t1"]
            assert of_t1 == ["RUNNING", "FINISHED"], "in order, though the first try failed"
            [failure] = [log for log in caplog.records if vars(log)["event"] == "handler_failed"]
            fields = vars(failure)["fields"]
            assert (fields["handler"], fields["task_id"]) == ("on_update", "t1")
            assert failure.exc_info


async def test_a_repeated_update_is_acknowledged_again_and_not_shown() -> None:
    async with FakeMaster(resend_s=0.05) as master:
        framework = Recorder(master.address)
        async with running(framework, master):
            await framework.launch(master, task("t1"))
            master.refuse_next(Unavailable("the acknowledgement is lost"))
            await master.update("t1", TaskState.RUNNING)
            first = await master.next_call("acknowledge")
            second = await master.next_call("acknowledge")
            assert first.updates == second.updates == (("t1", 1),)
            assert framework.states == [("t1", "RUNNING")]


async def test_updates_are_handled_across_a_reconnection(
    master: FakeMaster, framework: Recorder
) -> None:
    await framework.launch(master, task("t1"))
    master.disconnect()
    await master.update("t1", TaskState.RUNNING)
    await master.update("t1", TaskState.FINISHED)
    await master.acknowledged("t1", 2)
    assert framework.states == [("t1", "RUNNING"), ("t1", "FINISHED")]


async def test_a_lost_agent_is_reported_with_its_tasks(
    master: FakeMaster, framework: Recorder
) -> None:
    await framework.launch(master, task("t1"))
    master.offer("cpus:1;mem:1GB")
    offer = await framework.next_offer()
    master.fail_agent("a1", "cable cut")
    await eventually(lambda: framework.states == [("t1", "UNREACHABLE")])
    assert framework.rescinded == [offer.id]
    [failure] = framework.failures
    assert (failure.agent_id, failure.hostname, failure.message) == ("a1", "h1", "cable cut")
