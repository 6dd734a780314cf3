"""`croupier run` against a fake master and a fake agent."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest

from croupier.ctl.signals import SAME_SIGNAL_S
from croupier.model.errors import Conflict, InvalidRequest, Removed
from croupier.model.isolation import Isolation, Limits
from croupier.model.task import Reason, TaskState
from croupier.sdk.testing import FakeMaster
from croupier.v1 import framework_pb2, resources_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import add_OperatorServiceServicer_to_server
from tests.harness.command import Ended, croupier, ended, started
from tests.harness.eventually import eventually
from tests.harness.operators import ScriptedOperator
from tests.harness.task_outputs import TaskOutputs, serving_outputs


class Master(FakeMaster):
    """A fake master that answers operators too, on the same port."""

    def __init__(self, **more: bool) -> None:
        super().__init__(timeout_s=20.0, **more)
        self.operator = ScriptedOperator()
        add_OperatorServiceServicer_to_server(self.operator, self._server)


@pytest.fixture
async def master() -> AsyncIterator[Master]:
    async with Master() as master:
        yield master


@pytest.fixture
async def agent() -> AsyncIterator[TaskOutputs]:
    async with serving_outputs() as outputs:
        yield outputs


async def play(
    master: Master,
    agent: TaskOutputs,
    code: int | None = 0,
    task_id: str = "run-0",
    signal: int | None = None,
) -> None:
    """Report that the task runs, and ends with `code` or by `signal`."""
    await master.update(task_id, TaskState.STARTING)
    await master.update(task_id, TaskState.RUNNING)
    state = TaskState.FAILED if code or signal else TaskState.FINISHED
    await master.update(task_id, state, exit_code=code, signal=signal)


async def test_output_and_exit_code_are_the_commands(master: Master, agent: TaskOutputs) -> None:
    agent.texts = {("run-0", "stdout"): b"out\nno newline", ("run-0", "stderr"): b"err\n"}
    argv = ["--cpus", "0.5", "--mem", "64MB", "--env", "A=b=c", "--name", "mine", "--role", "ads"]
    async with started("run", "--master", master.address, *argv, "--", "prog", "-n", "x") as run:
        await master.subscribed()
        call = await master.next_call("submit")
        (task,) = call.tasks
        await master.place(http_address=agent.address)
        await play(master, agent, code=7)
        done = await ended(run)
    assert done == Ended(7, "out\nno newline", "err\n")
    assert (task.command.argv, dict(task.command.environment)) == (
        ("prog", "-n", "x"),
        {"A": "b=c"},
    )
    assert (str(task.resources), task.name) == ("cpus:0.5;mem:64MB", "mine")


async def test_limits_go_to_agents_that_enforce_them(master: Master, agent: TaskOutputs) -> None:
    argv = ["--limit", "mem:1GB", "--limit", "pids:9", "--no-network", "--namespaces"]
    argv += ["--image", "dir:/srv/root", "--max-completion", "60s"]
    async with started("run", "--master", master.address, *argv, "--", "prog") as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        (task,) = (await master.next_call("submit")).tasks
        await master.update("run-0", TaskState.RUNNING)
        reason, message = Reason.MEMORY_LIMIT, "it took 1 GB, its limit"
        await master.update("run-0", TaskState.FAILED, signal=9, reason=reason, message=message)
        done = await ended(run)
    assert task.limits == Limits(mem=1_024_000, pids=9)
    assert task.isolation == Isolation(True, True, "dir:/srv/root")
    assert task.max_completion_ms == 60_000
    assert (done.code, "FAILED (MEMORY_LIMIT): it took 1 GB" in done.err) == (137, True)


async def test_the_framework_is_torn_down(master: Master, agent: TaskOutputs) -> None:
    async with started("run", "--master", master.address, "--", "true") as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        await play(master, agent)
        await master.next_call("teardown")
        assert (await ended(run)).code == 0


async def test_a_signal_is_exit_code_128_plus_its_number(
    master: Master, agent: TaskOutputs
) -> None:
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        await play(master, agent, None, signal=9)
        assert await ended(run) == Ended(137, "", "")


async def test_shell_joins_the_words(master: Master, agent: TaskOutputs) -> None:
    argv = ["run", "--master", master.address, "--shell", "--", "echo", "a;", "exit", "3"]
    async with started(*argv) as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        (task,) = (await master.next_call("submit")).tasks
        assert task.command.shell == "echo a; exit 3"
        await play(master, agent)
        assert (await ended(run)).code == 0


async def test_lines_of_several_tasks_have_prefixes(master: Master, agent: TaskOutputs) -> None:
    for index in range(3):
        agent.texts[f"run-{index}", "stdout"] = f"one {index}\ntwo {index}".encode()
    async with started("run", "--master", master.address, "-n", "3", "--", "x") as run:
        await master.subscribed()
        await master.place("run-0", agent_id="a1", http_address=agent.address)
        await master.place("run-1", "run-2", agent_id="a2", http_address=agent.address)
        for index, code in ((2, 5), (1, 4), (0, 0)):
            await play(master, agent, code, f"run-{index}")
        done = await ended(run)
    assert done.code == 4
    lines = [f"[{i}] {word} {i}" for i in range(3) for word in ("one", "two")]
    assert sorted(done.out.splitlines()) == sorted(lines)
    assert done.err == ""


async def test_hundreds_of_short_tasks_take_seconds(agent: TaskOutputs) -> None:
    async with Master(auto_run=True) as master:
        argv = ["-n", "200", "--cpus", "0.1", "--mem", "16MB", "--", "true"]
        async with started("run", "--master", master.address, *argv) as run:
            await master.subscribed()
            for number in range(10):
                part = [f"run-{number * 20 + place}" for place in range(20)]
                await master.place(*part, agent_id=f"a{number}", http_address=agent.address)
            assert await ended(run, timeout_s=15.0) == Ended(0, "", "")
    assert len(agent.asked) == 400


async def test_the_output_of_all_tasks_is_followed_at_once(
    master: Master, agent: TaskOutputs
) -> None:
    """A bound on open connections would delay the output of the last tasks."""
    agent.open_ended = {f"run-{index}" for index in range(100)}
    agent.texts = {(task_id, "stdout"): b"here\n" for task_id in agent.open_ended}
    async with started("run", "--master", master.address, "-n", "100", "--", "x") as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        for index in range(100):
            await master.update(f"run-{index}", TaskState.RUNNING)
        assert run.stdout is not None
        lines = [await asyncio.wait_for(run.stdout.readline(), 20) for _ in range(100)]
        assert len(set(lines)) == 100
        agent.open_ended.clear()
        for index in range(100):
            await master.update(f"run-{index}", TaskState.FINISHED, exit_code=0)
        assert (await ended(run)).code == 0
    assert agent.most == 200


async def test_a_broken_connection_neither_loses_nor_repeats_output(
    master: Master, agent: TaskOutputs
) -> None:
    text = b"".join(b"line %d\n" % number for number in range(50_000))
    agent.texts = {("run-0", "stdout"): text}
    agent.breaks["run-0", "stdout"] = 3
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
    agent.texts = {("run-0", "stdout"): b"before\n"}
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        await master.update("run-0", TaskState.RUNNING)
        assert run.stdout is not None
        assert await asyncio.wait_for(run.stdout.readline(), 20) == b"before\n"
        agent.texts = {("run-0", "stdout"): b"before\nafter\n"}
        assert await asyncio.wait_for(run.stdout.readline(), 20) == b"after\n"
        await master.update("run-0", TaskState.FINISHED, exit_code=0)
        assert await ended(run) == Ended(0, "", "")


def agents_at(*addresses: str) -> pb.ListAgentsResponse:
    """Return the master's list of agents a1, a2 and so on."""
    return pb.ListAgentsResponse(
        agents=[
            pb.AgentView(
                agent=framework_pb2.AgentDescription(agent_id=f"a{number}", http_address=address),
                state="connected",
            )
            for number, address in enumerate(addresses, start=1)
        ]
    )


async def test_output_is_read_from_an_agents_new_port(master: Master) -> None:
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        async with serving_outputs() as before:
            before.texts = {("run-0", "stdout"): b"before\n"}
            before.open_ended = {"run-0"}
            await master.place(http_address=before.address)
            await master.update("run-0", TaskState.RUNNING)
            assert run.stdout is not None
            assert await asyncio.wait_for(run.stdout.readline(), 20) == b"before\n"
        async with serving_outputs() as after:
            after.texts = {("run-0", "stdout"): b"before\nafter\n"}
            master.operator.answers[pb.ListAgentsRequest] = agents_at(after.address)
            assert await asyncio.wait_for(run.stdout.readline(), 20) == b"after\n"
            await master.update("run-0", TaskState.FAILED, exit_code=3)
            assert await ended(run) == Ended(3, "", "")
            assert "/output/fake-1-F1/run-0/stdout?follow=1&offset=7" in after.asked


async def test_missing_output_is_reported_and_changes_no_exit_code(
    master: Master, agent: TaskOutputs
) -> None:
    agent.status = 503
    master.operator.answers[pb.ListAgentsRequest] = agents_at(agent.address)
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        await play(master, agent)
        await eventually(lambda: len(agent.asked) > 6, timeout_s=20)
        agent.status = 404
        done = await ended(run)
    assert (done.code, done.out) == (0, "")
    assert "run-0: stdout may be cut short: the agent knows no such output" in done.err
    assert "run-0: stderr may be cut short" in done.err


async def test_unreadable_output_is_reported(master: Master) -> None:
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        await master.place(http_address="127.0.0.1:9")
        await play(master, TaskOutputs())
        done = await ended(run)
    assert done.code == 0
    assert "run-0: stdout may be cut short: cannot reach 127.0.0.1:9" in done.err


@pytest.mark.parametrize("code", [None, 126, 127])
async def test_a_task_that_cannot_start_has_a_shells_exit_code(
    master: Master, agent: TaskOutputs, code: int | None
) -> None:
    agent.knows_all = False
    async with started("run", "--master", master.address, "--", "nosuch") as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        reason = Reason.CONTAINER_LAUNCH_FAILED
        message = "nosuch: not found"
        await master.update(
            "run-0", TaskState.FAILED, reason=reason, message=message, exit_code=code
        )
        done = await ended(run)
    line = "croupier run: run-0: FAILED (CONTAINER_LAUNCH_FAILED): nosuch: not found\n"
    assert done == Ended(code or 1, "", line)


@pytest.mark.parametrize("state", [TaskState.LOST, TaskState.GONE, TaskState.ERROR])
async def test_a_lost_task_is_reported_and_is_exit_code_1(master: Master, state: TaskState) -> None:
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        await master.place()
        await master.update("run-0", state, message="why", from_master=True)
        assert await ended(run) == Ended(1, "", f"croupier run: run-0: {state.name}: why\n")


async def test_a_dropped_task_is_retried_three_times(master: Master) -> None:
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        for task_id in ("run-0", "run-0.2", "run-0.3", "run-0.4"):
            await master.place()
            await master.update(task_id, TaskState.DROPPED, from_master=True)
        assert await ended(run) == Ended(1, "", "croupier run: run-0.4: DROPPED\n")


async def test_a_full_queue_is_retried(master: Master, agent: TaskOutputs) -> None:
    master.refuse_next(Conflict("the queue is full"), "submit")
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        await master.next_call("submit")
        await master.place("run-0.2", http_address=agent.address)
        await play(master, agent, 0, "run-0.2")
        assert await ended(run) == Ended(0, "", "")


async def test_a_task_that_is_refused_ends_the_run(master: Master) -> None:
    master.refuse_next(InvalidRequest("no such thing as x"), "submit")
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        done = await ended(run)
    assert done.code == 1
    assert "no such thing as x" in done.err


async def test_removal_of_the_framework_is_exit_code_1(master: Master) -> None:
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        master.disconnect(Removed("removed by the operator"))
        assert await ended(run) == Ended(1, "", "croupier: removed by the operator\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_ends_the_tasks(
    master: Master, agent: TaskOutputs, number: signal.Signals, code: int
) -> None:
    agent.open_ended = {"run-0"}
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        await master.update("run-0", TaskState.RUNNING)
        run.send_signal(number)
        await master.next_call("kill")
        agent.texts = {("run-0", "stderr"): b"last words\n"}
        agent.open_ended = set()
        await master.update("run-0", TaskState.KILLED, signal=15)
        await master.next_call("teardown")
        done = await ended(run)
    assert (done.code, done.out) == (code, "")
    assert done.err == "last words\n"


async def test_a_second_signal_ends_the_run_at_once(master: Master, agent: TaskOutputs) -> None:
    agent.open_ended = {"run-0"}
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        await master.update("run-0", TaskState.RUNNING)
        run.send_signal(signal.SIGINT)
        await master.next_call("kill")
        await asyncio.sleep(SAME_SIGNAL_S)
        run.send_signal(signal.SIGINT)
        await master.next_call("teardown")
        assert (await ended(run, timeout_s=5.0)).code == 130


async def test_two_signals_at_once_count_as_one(master: Master, agent: TaskOutputs) -> None:
    """timeout(1) signals a process and then its group."""
    agent.open_ended = {"run-0"}
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        await master.update("run-0", TaskState.RUNNING)
        run.send_signal(signal.SIGTERM)
        run.send_signal(signal.SIGINT)
        await master.next_call("kill")
        agent.texts = {("run-0", "stdout"): b"bye\n"}
        agent.open_ended = set()
        await master.update("run-0", TaskState.KILLED, exit_code=0)
        done = await ended(run)
    assert done.out == "bye\n"


async def test_the_loss_of_the_master_is_reported(agent: TaskOutputs) -> None:
    agent.open_ended = {"run-0"}
    async with Master() as master, started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        await master.update("run-0", TaskState.RUNNING)
        await master.acknowledged("run-0", 1)
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
        assert b"; no credential was found: if the cluster requires one, give --token-file" in line
        run.send_signal(signal.SIGINT)
        assert (await ended(run, timeout_s=8.0)).code == 130


async def test_a_closed_pipe_ends_the_run(master: Master, agent: TaskOutputs) -> None:
    agent.texts = {("run-0", "stdout"): b"line\n" * 1_000_000}
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        await master.update("run-0", TaskState.RUNNING)
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
            "no agents are registered\n"
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


async def test_no_command_is_a_usage_error() -> None:
    done = await croupier("run")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(
        "croupier: no command is given (example: croupier run -- echo hello)"
    )


async def test_a_run_ends_at_its_timeout(master: Master, agent: TaskOutputs) -> None:
    words = ("--timeout", "1s", "--master", master.address)
    async with started("run", *words, "--", "x") as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        await master.update("run-0", TaskState.RUNNING)
        await master.next_call("submit")
        call = await master.next_call("kill")
        assert call.task_ids == ("run-0",)
        await master.update("run-0", TaskState.KILLED, signal=15)
        done = await ended(run)
    line = "croupier run: not done after 1 s (--timeout); the tasks are killed\n"
    assert done == Ended(124, "", line)


async def test_a_run_ends_at_its_wait_limit(master: Master) -> None:
    words = ("--wait-for-resources", "500ms", "--master", master.address)
    async with started("run", *words, "--", "x") as run:
        await master.subscribed()
        done = await ended(run)
    line = "croupier run: no task could be started for 0.5 s (--wait-for-resources)\n"
    assert (done.code, done.out) == (124, "")
    assert done.err.endswith(line)


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
