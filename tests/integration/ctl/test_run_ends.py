"""`croupier run` waits for resources or a master, and ends by signals and limits."""

from __future__ import annotations

import asyncio
import signal

import pytest

from croupier.cli.signals import SAME_SIGNAL_S
from croupier.model.task import TaskState
from croupier.v1 import operator_pb2 as pb
from croupier.v1 import resources_pb2
from tests.harness.command import Ended, croupier, ended, started
from tests.harness.eventually import eventually
from tests.harness.run_master import Master
from tests.harness.task_outputs import TaskOutputs


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_ends_the_tasks(
    master: Master, agent: TaskOutputs, number: signal.Signals, code: int
) -> None:
    agent.open_ended = {"x-9b5d"}
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        await master.update("x-9b5d", TaskState.RUNNING)
        run.send_signal(number)
        await master.next_call("kill")
        agent.texts = {("x-9b5d", "stderr"): b"last words\n"}
        agent.open_ended = set()
        await master.update("x-9b5d", TaskState.KILLED, signal=15)
        await master.next_call("teardown")
        done = await ended(run)
    assert (done.code, done.out) == (code, "")
    assert done.err == "last words\n"


async def test_a_second_signal_ends_the_run_at_once(master: Master, agent: TaskOutputs) -> None:
    agent.open_ended = {"x-9b5d"}
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        await master.update("x-9b5d", TaskState.RUNNING)
        run.send_signal(signal.SIGINT)
        await master.next_call("kill")
        await asyncio.sleep(SAME_SIGNAL_S)
        run.send_signal(signal.SIGINT)
        await master.next_call("teardown")
        assert (await ended(run, timeout_s=5.0)).code == 130


async def test_two_signals_at_once_count_as_one(master: Master, agent: TaskOutputs) -> None:
    """timeout(1) signals a process and then its group."""
    agent.open_ended = {"x-9b5d"}
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        await master.update("x-9b5d", TaskState.RUNNING)
        run.send_signal(signal.SIGTERM)
        run.send_signal(signal.SIGINT)
        await master.next_call("kill")
        agent.texts = {("x-9b5d", "stdout"): b"bye\n"}
        agent.open_ended = set()
        await master.update("x-9b5d", TaskState.KILLED, exit_code=0)
        done = await ended(run)
    assert done.out == "bye\n"


async def test_the_loss_of_the_master_is_reported(agent: TaskOutputs) -> None:
    agent.open_ended = {"x-9b5d"}
    async with Master() as master, started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        await master.update("x-9b5d", TaskState.RUNNING)
        await master.acknowledged("x-9b5d", 1)
        await master.__aexit__()
        assert run.stderr is not None
        line = (await asyncio.wait_for(run.stderr.readline(), 20)).decode()
        assert "cannot reach a master" in line
        assert "running tasks continue" in line
        run.send_signal(signal.SIGINT)
        assert (await ended(run)).code == 130


async def test_ctrl_c_works_without_a_master() -> None:
    async with started("run", "--master", "127.0.0.1:9", "--", "x") as run:
        assert run.stderr is not None
        line = await asyncio.wait_for(run.stderr.readline(), 20)
        assert b"cannot reach a master at 127.0.0.1:9" in line
        assert b"; no credential was found: " in line
        assert b"--token-file or --tls-cert" in line
        run.send_signal(signal.SIGINT)
        assert (await ended(run, timeout_s=8.0)).code == 130


async def test_a_closed_pipe_ends_the_run(master: Master, agent: TaskOutputs) -> None:
    agent.texts = {("x-9b5d", "stdout"): b"line\n" * 1_000_000}
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        await master.update("x-9b5d", TaskState.RUNNING)
        assert run.stdout is not None
        await asyncio.wait_for(run.stdout.readline(), 20)
        run._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
        await master.next_call("teardown")
        assert run.stderr is not None
        assert await asyncio.wait_for(run.stderr.read(), 20) == b""
        assert await asyncio.wait_for(run.wait(), 20) == 141


async def test_each_reason_to_wait_is_printed_once(master: Master) -> None:
    operator = master.operator
    async with started("run", "--master", master.address, "-n", "2", "--", "x") as run:
        assert run.stderr is not None
        line = await asyncio.wait_for(run.stderr.readline(), 20)
        assert line.decode() == (
            "croupier run: waiting to run 2 of 2 tasks (cpus:1;mem:128MB each): "
            "no agents are registered (--wait-for-resources TIME gives up)\n"
        )
        operator.answers[pb.GetMasterRequest] = pb.GetMasterResponse(
            leader=True, total=resources_pb2.Resources(cpus_milli=500)
        )
        operator.answers[pb.ExplainRequest] = pb.ExplainResponse(
            reasons=[pb.PassedOver(cause="does not fit", agents=3, detail="free cpus:0.5")]
        )
        line = await asyncio.wait_for(run.stderr.readline(), 20)
        assert line.decode().endswith(": does not fit on 3 agents (free cpus:0.5)\n")
        asked = len(operator.asked)
        await eventually(lambda: len(operator.asked) >= asked + 4)
        run.send_signal(signal.SIGINT)
        assert (await ended(run)).err == ""


async def test_a_run_ends_at_its_timeout(master: Master, agent: TaskOutputs) -> None:
    words = ("--timeout", "1s", "--master", master.address)
    async with started("run", *words, "--", "x") as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        await master.update("x-9b5d", TaskState.RUNNING)
        await master.next_call("submit")
        call = await master.next_call("kill")
        assert call.task_ids == ("x-9b5d",)
        await master.update("x-9b5d", TaskState.KILLED, signal=15)
        done = await ended(run)
    line = "croupier run: not done after 1 s (--timeout); the tasks are killed\n"
    assert done == Ended(124, "", line)


async def test_a_run_ends_at_its_wait_limit(master: Master) -> None:
    words = ("--wait-for-resources", "500ms", "--master", master.address)
    async with started("run", *words, "--", "x") as run:
        await master.subscribed()
        done = await ended(run)
    line = "croupier run: no task could be started for 0.5 s (--wait-for-resources): "
    reason = "waiting to run the task (cpus:1;mem:128MB): no agents are registered\n"
    assert (done.code, done.out) == (124, "")
    assert done.err.endswith(line + reason)


async def test_a_run_without_a_master_ends_in_time() -> None:
    words = ("--wait-for-resources", "500ms", "--master", "127.0.0.1:9")
    done = await croupier("run", *words, "--", "x")
    assert done.code == 124
    assert "no task could be started" in done.err


@pytest.mark.parametrize("flag", ["--timeout", "--wait-for-resources"])
async def test_a_time_limit_is_above_zero(flag: str) -> None:
    done = await croupier("run", flag, "0", "--", "x")
    assert (done.code, done.out) == (2, "")
    assert f"{flag} must be more than 0" in done.err
