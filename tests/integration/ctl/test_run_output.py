"""`croupier run` prints the output of its tasks, wherever and however their agents serve it."""

from __future__ import annotations

import asyncio

from croupier.model.task import TaskState
from croupier.v1 import operator_pb2 as pb
from tests.harness.command import Ended, ended, started
from tests.harness.eventually import eventually
from tests.harness.run_master import Master, agents_at, play
from tests.harness.task_outputs import TaskOutputs, serving_outputs


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
            master.operator.answers[pb.ListAgentsRequest] = agents_at(after.address)
            assert await asyncio.wait_for(run.stdout.readline(), 20) == b"after\n"
            await master.update("x-9b5d", TaskState.FAILED, exit_code=3)
            assert await ended(run) == Ended(3, "", "")
            assert "/output/fake-1-F1/x-9b5d/stdout?follow=1&offset=7" in after.asked


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
    assert "x-9b5d: stdout may be cut short: the agent knows no such output" in done.err
    assert "x-9b5d: stderr may be cut short" in done.err


async def test_unreadable_output_is_reported(master: Master) -> None:
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        await master.place(http_address="127.0.0.1:9")
        await play(master, TaskOutputs())
        done = await ended(run)
    assert done.code == 0
    assert "x-9b5d: stdout may be cut short: cannot reach the agent at 127.0.0.1:9" in done.err
