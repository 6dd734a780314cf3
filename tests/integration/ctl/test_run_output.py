"""`croupier run`: output of its tasks, also by signed links, waiting, and ends by signals."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from croupier.agent import served_files
from croupier.cli.signals import SAME_SIGNAL_S
from croupier.model.access import Action
from croupier.model.task import TaskState
from croupier.net.credentials import make_token
from croupier.v1 import operator_pb2 as pb
from croupier.v1 import resources_pb2
from tests.harness.agents import running_agent
from tests.harness.certificates import PemFiles, authority
from tests.harness.command import Ended, croupier, ended, line, started
from tests.harness.eventually import eventually
from tests.harness.masters import running_master
from tests.harness.run_master import Master, links_at, play
from tests.harness.secured import SecuredMaster
from tests.harness.task_outputs import TaskOutputs, serving_outputs
from tests.integration.agent.test_identity import tls_of


async def test_the_output_of_all_tasks_is_followed_at_once(
    master: Master, agent: TaskOutputs
) -> None:
    """A bound on open connections would delay the output of the last tasks."""
    agent.open_ended = {f"x-9b5d-{index}" for index in range(100)}
    agent.texts = {(task_id, "stdout"): b"here\n" for task_id in agent.open_ended}
    async with started("run", "--master", master.address, "-n", "100", "--", "x") as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        for index in range(100):
            await master.update(f"x-9b5d-{index}", TaskState.RUNNING)
        assert run.stdout is not None
        lines = [await asyncio.wait_for(run.stdout.readline(), 20) for _ in range(100)]
        assert len(set(lines)) == 100
        await eventually(lambda: agent.now == 200, what="both streams of all tasks are open")
        agent.open_ended.clear()
        for index in range(100):
            await master.update(f"x-9b5d-{index}", TaskState.FINISHED, exit_code=0)
        assert (await ended(run)).code == 0
    assert agent.most == 200


async def test_a_broken_connection_neither_loses_nor_repeats_output(
    master: Master, agent: TaskOutputs
) -> None:
    text = b"".join(b"line %d\n" % number for number in range(50_000))
    agent.texts = {("x-9b5d", "stdout"): text}
    agent.breaks["x-9b5d", "stdout"] = 3
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        await play(master, agent)
        done = await ended(run)
    assert (done.code, done.err) == (0, "")
    assert done.out.encode() == text


async def test_a_stream_that_ends_before_its_task_is_opened_again(
    master: Master, agent: TaskOutputs
) -> None:
    """An agent that restarts in order ends the stream; the task continues and writes more."""
    agent.texts = {("x-9b5d", "stdout"): b"before\n"}
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        await master.update("x-9b5d", TaskState.RUNNING)
        assert run.stdout is not None
        assert await asyncio.wait_for(run.stdout.readline(), 20) == b"before\n"
        agent.texts = {("x-9b5d", "stdout"): b"before\nafter\n"}
        assert await asyncio.wait_for(run.stdout.readline(), 20) == b"after\n"
        await master.update("x-9b5d", TaskState.FINISHED, exit_code=0)
        assert await ended(run) == Ended(0, "", "")


async def test_output_is_read_from_an_agents_new_port(master: Master) -> None:
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        async with serving_outputs() as before:
            before.texts = {("x-9b5d", "stdout"): b"before\n"}
            before.open_ended = {"x-9b5d"}
            await master.place(http_address=before.address)
            await master.update("x-9b5d", TaskState.RUNNING)
            assert run.stdout is not None
            assert await asyncio.wait_for(run.stdout.readline(), 20) == b"before\n"
        async with serving_outputs() as after:
            after.texts = {("x-9b5d", "stdout"): b"before\nafter\n"}
            master.operator.answers[pb.GetOutputLinksRequest] = links_at(after.address)
            assert await asyncio.wait_for(run.stdout.readline(), 20) == b"after\n"
            await master.update("x-9b5d", TaskState.FAILED, exit_code=3)
            assert await ended(run) == Ended(3, "", "")
            assert "/output/fake-1-F1/x-9b5d/stdout?follow=1&offset=7" in after.asked


async def test_missing_output_is_reported_and_changes_no_exit_code(
    master: Master, agent: TaskOutputs
) -> None:
    agent.status = 503
    master.operator.answers[pb.GetOutputLinksRequest] = links_at(agent.address)
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        await play(master, agent)
        await eventually(lambda: len(agent.asked) > 6, timeout_s=20)
        agent.status = 404
        done = await ended(run)
    assert (done.code, done.out) == (0, "")
    assert "x-9b5d: stdout may be cut short: no stdout of task x-9b5d" in done.err
    assert "x-9b5d: stderr may be cut short" in done.err


async def test_unreadable_output_is_reported(master: Master) -> None:
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        await master.place(http_address="127.0.0.1:9")
        await play(master, TaskOutputs())
        # It tries for 20 s.
        done = await ended(run, timeout_s=90.0)
    assert done.code == 0
    assert "x-9b5d: stdout may be cut short: cannot reach the agent at 127.0.0.1:9" in done.err


def flags(files: PemFiles) -> tuple[str, ...]:
    return (
        f"--tls-ca={files.ca}", f"--tls-cert={files.cert}", f"--tls-key={files.key}",
    )  # fmt: skip


async def test_output_is_for_the_owner_and_links_are_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The agent breaks each connection early, so that the reader needs several links.
    monkeypatch.setattr(served_files, "FOLLOW_S", 0.1)
    names = ("master/m1", "agent/a1", "client/alice")
    files = {name: authority().issue(tmp_path / name, name) for name in names}
    async with running_master(tls=tls_of(files["master/m1"])) as master:
        secured = SecuredMaster(master, make_token())
        secured.allow("client/alice", [Action.REGISTER], "role:**")
        secured.allow("client/alice", [Action.RUN_AS], "user:*")
        async with running_agent(
            tmp_path / "work", master.address, tls=tls_of(files["agent/a1"])
        ) as agent:
            await eventually(lambda: agent.link.is_registered)
            assert master.driver.state.agents[agent.state.agent_id].http_address.startswith(
                "https:"
            )
            argv = (
                "run",
                f"--master={master.address}",
                *flags(files["client/alice"]),
                "--mem=32MB",
            )
            done = await croupier(*argv, "--", "sh", "-c", "echo out; sleep 0.25; echo more")
            assert done == Ended(0, "out\nmore\n", "")
            # A command beside a task: the agent opens its stream with its own certificate.
            shell = "echo $CROUPIER_TASK_ID; exec sleep 600"
            async with started(*argv, "--", "sh", "-c", shell) as process:
                task_id = (await line(process)).strip()
                command = ("exec", *argv[1:-1], task_id, "--", "sh", "-c", "echo $CROUPIER_TASK_ID")
                assert await croupier(*command) == Ended(0, f"{task_id}\n", "")
                process.terminate()
                await ended(process)


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
        assert (await ended(run)).code == 130


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
        line = (await asyncio.wait_for(run.stderr.readline(), 60)).decode()
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
        assert (await ended(run)).code == 130


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
    words = ("--timeout", "3s", "--master", master.address)
    async with started("run", *words, "--", "x") as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        await master.update("x-9b5d", TaskState.RUNNING)
        await master.next_call("submit")
        call = await master.next_call("kill")
        assert call.task_ids == ("x-9b5d",)
        await master.update("x-9b5d", TaskState.KILLED, signal=15)
        done = await ended(run)
    line = "croupier run: not done after 3 s (--timeout); the tasks are killed\n"
    assert done == Ended(124, "", line)


async def test_a_run_ends_at_its_wait_limit(master: Master) -> None:
    words = ("--wait-for-resources", "2s", "--master", master.address)
    async with started("run", *words, "--", "x") as run:
        await master.subscribed()
        done = await ended(run)
    line = "croupier run: no task could be started for 2 s (--wait-for-resources): "
    reason = "waiting to run the task (cpus:1;mem:128MB): no agents are registered\n"
    assert (done.code, done.out) == (124, "")
    assert done.err.endswith(line + reason)


async def test_a_run_without_a_master_ends_in_time() -> None:
    words = ("--wait-for-resources", "500ms", "--master", "127.0.0.1:9")
    done = await croupier("run", *words, "--", "x")
    assert done.code == 124
    assert "no task could be started" in done.err
