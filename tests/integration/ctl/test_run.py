"""`croupier run` against a fake master and a fake agent."""

from __future__ import annotations

import pytest

from croupier.model.errors import Conflict, InvalidRequest, Removed
from croupier.model.isolation import Isolation, Limits
from croupier.model.task import Reason, TaskState
from tests.harness.command import Ended, ended, started
from tests.harness.run_master import Master, play
from tests.harness.task_outputs import TaskOutputs


async def test_output_and_exit_code_are_the_commands(master: Master, agent: TaskOutputs) -> None:
    agent.texts = {("mine-9b5d", "stdout"): b"out\nno newline", ("mine-9b5d", "stderr"): b"err\n"}
    argv = ["--cpus", "0.5", "--mem", "64MB", "--env", "A=b=c", "--name", "mine", "--role", "ads"]
    async with started("run", "--master", master.address, *argv, "--", "prog", "-n", "x") as run:
        await master.subscribed()
        call = await master.next_call("submit")
        (task,) = call.tasks
        await master.place(http_address=agent.address)
        await play(master, agent, code=7, task_id="mine-9b5d")
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
        await master.update("prog-9b5d", TaskState.RUNNING)
        reason, message = Reason.MEMORY_LIMIT, "it took 1 GB, its limit"
        await master.update("prog-9b5d", TaskState.FAILED, signal=9, reason=reason, message=message)
        done = await ended(run)
    assert task.limits == Limits(mem=1_024_000, pids=9)
    assert task.isolation == Isolation(True, True, "dir:/srv/root")
    assert task.max_completion_ms == 60_000
    assert (done.code, "FAILED (MEMORY_LIMIT): it took 1 GB" in done.err) == (137, True)


async def test_the_framework_is_torn_down(master: Master, agent: TaskOutputs) -> None:
    async with started("run", "--master", master.address, "--", "x") as run:
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
    argv = ["--name", "x", "--shell", "--", "echo", "a;", "exit", "3"]
    async with started("run", "--master", master.address, *argv) as run:
        await master.subscribed()
        await master.place(http_address=agent.address)
        (task,) = (await master.next_call("submit")).tasks
        assert task.command.shell == "echo a; exit 3"
        await play(master, agent)
        assert (await ended(run)).code == 0


async def test_lines_of_several_tasks_have_prefixes(master: Master, agent: TaskOutputs) -> None:
    for index in range(3):
        agent.texts[f"x-9b5d-{index}", "stdout"] = f"one {index}\ntwo {index}".encode()
    async with started("run", "--master", master.address, "-n", "3", "--", "x") as run:
        await master.subscribed()
        await master.place("x-9b5d-0", agent_id="a1", http_address=agent.address)
        await master.place("x-9b5d-1", "x-9b5d-2", agent_id="a2", http_address=agent.address)
        for index, code in ((2, 5), (1, 4), (0, 0)):
            await play(master, agent, code, f"x-9b5d-{index}")
        done = await ended(run)
    assert done.code == 4
    lines = [f"[{i}] {word} {i}" for i in range(3) for word in ("one", "two")]
    assert sorted(done.out.splitlines()) == sorted(lines)
    assert done.err == ""


async def test_hundreds_of_short_tasks_run_at_once(agent: TaskOutputs) -> None:
    async with Master(auto_run=True) as master:
        argv = ["-n", "200", "--cpus", "0.1", "--mem", "16MB", "--", "x"]
        async with started("run", "--master", master.address, *argv) as run:
            await master.subscribed()
            for number in range(10):
                part = [f"x-9b5d-{number * 20 + place}" for place in range(20)]
                await master.place(*part, agent_id=f"a{number}", http_address=agent.address)
            assert await ended(run) == Ended(0, "", "")
    assert len(agent.asked) == 400


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
            "nosuch-9b5d", TaskState.FAILED, reason=reason, message=message, exit_code=code
        )
        done = await ended(run)
    line = "croupier run: nosuch-9b5d: FAILED (CONTAINER_LAUNCH_FAILED): nosuch: not found\n"
    assert done == Ended(code or 1, "", line)


@pytest.mark.parametrize("state", [TaskState.LOST, TaskState.GONE, TaskState.ERROR])
async def test_a_lost_task_is_reported_and_is_exit_code_1(master: Master, state: TaskState) -> None:
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        await master.place()
        await master.update("x-9b5d", state, message="why", from_master=True)
        assert await ended(run) == Ended(1, "", f"croupier run: x-9b5d: {state.name}: why\n")


async def test_a_dropped_task_is_retried_three_times(master: Master) -> None:
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        for task_id in ("x-9b5d", "x-9b5d.2", "x-9b5d.3", "x-9b5d.4"):
            await master.place()
            await master.update(task_id, TaskState.DROPPED, from_master=True)
        assert await ended(run) == Ended(1, "", "croupier run: x-9b5d.4: DROPPED\n")


async def test_a_full_queue_is_retried(master: Master, agent: TaskOutputs) -> None:
    master.refuse_next(Conflict("the queue is full"), "submit")
    async with started("run", "--master", master.address, "--", "x") as run:
        await master.subscribed()
        await master.next_call("submit")
        await master.place("x-9b5d.2", http_address=agent.address)
        await play(master, agent, 0, "x-9b5d.2")
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
