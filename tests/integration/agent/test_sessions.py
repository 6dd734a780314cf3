"""Sessions of an agent: silence, lost streams, errors, and updates that are sent again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from grpc import StatusCode
from structlog.testing import capture_logs

from croupier.agent import link
from croupier.model.errors import Conflict, InvalidRequest, ProtocolViolation, Removed
from croupier.model.store_position import MAX_EPOCH
from croupier.model.task import Reason, TaskState
from tests.harness.eventually import eventually
from tests.harness.processes import is_running
from tests.harness.scripted_master import F, ScriptedMaster, beat, program, shell
from tests.integration.agent.conftest import Serving, Start

RUNNING, FINISHED, KILLED = TaskState.RUNNING, TaskState.FINISHED, TaskState.KILLED


async def test_a_task_keeps_running_without_a_master(
    serving: Serving, master: ScriptedMaster, tmp_path: Path
) -> None:
    master.launch(shell("t1", "while ! test -e go; do sleep 0.02; done"))
    running = await master.state("t1", RUNNING)
    (task,) = serving.agent.state.tasks.values()
    await eventually(lambda: not task.updates.waiting)
    await master.stop()
    await eventually(lambda: not serving.agent.link.is_registered)
    (tmp_path / "work" / "sandboxes" / F / "t1" / "go").touch()
    await eventually(lambda: not is_running(running.pid))
    await eventually(lambda: task.state is FINISHED, what="the agent notices its end")
    await master.start()
    session = await master.agent(sessions=2)
    assert session.register is not None
    (reported,) = session.register.tasks
    assert (reported.framework_id, reported.task.task_id) == (F, "t1")
    assert reported.task.resources.cpus_milli == 100
    assert reported.latest.state == FINISHED.value
    assert [s.sequence for s in reported.unacknowledged] == [3]
    await eventually(lambda: not serving.agent.state.tasks, what="its end is acknowledged")


async def test_the_agent_stays_with_a_busy_master_that_sends_heartbeats_before_it_registers_it(
    start: Start, master: ScriptedMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "TIMES", replace(link.TIMES, join_s=1.5))
    master.is_silent = True
    await start()
    await master.agent()
    for _ in range(50):
        master.order(beat())
        await asyncio.sleep(0.05)
    assert len(master.sessions) == 1, "the agent does not reconnect to a busy master"


@pytest.mark.parametrize("error", [Conflict("no"), InvalidRequest("no"), ProtocolViolation("no")])
async def test_the_agent_reconnects_after_most_errors(
    serving: Serving, master: ScriptedMaster, error: Exception
) -> None:
    assert isinstance(error, Conflict | InvalidRequest | ProtocolViolation)
    master.hang_up(error)
    again = await master.agent(sessions=2)
    assert again.register is not None
    assert again.register.agent_id == serving.agent.state.agent_id


@pytest.mark.parametrize(
    "status", [StatusCode.FAILED_PRECONDITION, StatusCode.ABORTED, StatusCode.INVALID_ARGUMENT]
)
async def test_a_status_without_an_error_message_is_a_lost_master(
    serving: Serving, master: ScriptedMaster, status: StatusCode
) -> None:
    """Only an ERROR in the stream is certainly the master's; a status may come from a proxy."""
    await master.agent()
    await eventually(lambda: serving.agent.link.is_registered)
    master.status = status
    with capture_logs() as logs:
        master.hang_up()
        await master.agent(sessions=2)
    [lost] = [each for each in logs if each.get("error") == "because"]
    assert (lost["event"], lost["kind"]) == ("master_lost", "Unavailable")


async def test_a_removed_agent_kills_its_tasks_and_registers_with_a_new_id(
    serving: Serving, master: ScriptedMaster
) -> None:
    before = serving.agent.state.agent_id
    master.launch(program("t1", "sleep", "60"))
    running = await master.state("t1", RUNNING)
    master.hang_up(Removed("the operator removed it"))
    again = await master.agent(sessions=2)
    assert again.register is not None
    assert again.register.agent_id == serving.agent.state.agent_id != before
    assert not again.register.tasks
    assert not is_running(running.pid)


async def test_a_stop_ends_tasks_reports_them_and_sends_goodbye(
    serving: Serving, master: ScriptedMaster
) -> None:
    master.launch(program("t1", "sleep", "60"), shell("t2", "trap '' TERM; sleep 60", grace_ms=300))
    await master.state("t1", RUNNING)
    pid = (await master.state("t2", RUNNING)).pid
    await serving.end()
    for task_id in ("t1", "t2"):
        killed = await master.state(task_id, KILLED)
        assert killed.reason == Reason.AGENT_STOPPED
    assert master.session.goodbye is not None
    assert not is_running(pid)
    # GOODBYE is the last report.
    assert master.session.reports[-1].HasField("goodbye")


async def test_a_stop_does_not_wait_for_a_master(
    serving: Serving, master: ScriptedMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("croupier.agent.app.FLUSH_S", 60.0)
    await master.stop()
    await eventually(lambda: not serving.agent.link.is_registered)
    await serving.end()


@pytest.mark.parametrize(("cluster", "epoch"), [("two", 9), ("one", 2**64 - 1)])
async def test_a_master_of_another_cluster_or_of_an_impossible_epoch_is_rejected(
    start: Start, master: ScriptedMaster, cluster: str, epoch: int
) -> None:
    master.cluster, master.epoch = "one", 1
    serving = await start()
    await master.agent()
    master.launch(shell("t1", "sleep 60"))
    running = await master.state("t1", RUNNING)
    await master.stop()
    master.cluster, master.epoch = cluster, epoch
    await master.start()
    await eventually(lambda: len(master.sessions) > 1 and master.sessions[1].is_over)
    assert not serving.agent.link.is_registered
    assert is_running(running.pid)
    state = serving.agent.state
    assert (state.cluster, state.master_epoch) == ("one", 1)
    await master.stop()
    master.cluster, master.epoch = "one", 2
    await master.start()
    await eventually(lambda: serving.agent.link.is_registered)
    # The agent's own loop takes it in next.
    await eventually(lambda: (state.cluster, state.master_epoch) == ("one", 2))


async def test_an_agent_forgets_a_false_master_and_keeps_its_tasks(
    start: Start, master: ScriptedMaster
) -> None:
    master.cluster, master.epoch = "one", MAX_EPOCH
    serving = await start(on_stop="leave")
    await master.agent()
    master.launch(shell("t1", "sleep 60"))
    running = await master.state("t1", RUNNING)
    await serving.end()
    master.epoch = 2
    again = await start(recover="forget-master")
    session = await master.agent(sessions=2)
    await eventually(lambda: again.agent.link.is_registered)
    assert session.register is not None
    assert (session.register.cluster, session.register.master_epoch) == ("", 0)
    assert [task.task.task_id for task in session.register.tasks] == ["t1"]
    assert is_running(running.pid)
    await eventually(lambda: again.agent.state.master_epoch == 2)
