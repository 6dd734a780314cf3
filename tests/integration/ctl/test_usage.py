"""Errors of a wrong command line, address or master, and control characters in messages."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from croupier.model.errors import Conflict, InvalidRequest
from croupier.model.task import TaskState
from croupier.net.transport import free_addresses
from croupier.v1 import framework_pb2, resources_pb2, task_pb2
from croupier.v1 import operator_pb2 as pb
from tests.harness.command import Ended, croupier, ended, started
from tests.harness.eventually import eventually
from tests.harness.operators import ScriptedOperator, serving
from tests.harness.run_master import Master


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("nosuch",), ""),
        (("kill",), " kill"),
        (("kill", "t1", "--grace", "soon"), " kill"),
        (("run", "--count", "x", "--", "true"), " run"),
        (("weights", "set", "--nosuch"), " weights set"),
        (("weights", "set", "a", "1", "b"), " weights set"),
        (("agent", "gone"), " agent gone"),
        (("drain",), " drain"),
        (("agents", "--master", "a:b"), " agents"),
    ],
)
async def test_a_wrong_command_line_names_the_help_of_its_command(
    words: tuple[str, ...], command: str
) -> None:
    done = await croupier(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith(f"(see croupier{command} --help)\n"), done.err


async def test_a_grace_is_a_duration() -> None:
    async with serving(ScriptedOperator()) as operator:
        operator.answers[pb.KillTaskRequest] = pb.KillTaskResponse()
        for text, grace_ms in (("2s", 2000), ("1m", 60_000), ("0.5", 500)):
            done = await croupier("kill", "t1", "--grace", text, "--master", operator.address)
            assert done.code == 0
            policy = task_pb2.KillPolicy(grace_ms=grace_ms)
            assert operator.asked[-1] == pb.KillTaskRequest(task_id="t1", kill_policy=policy)


async def test_an_ambiguous_task_is_refused_with_the_next_step() -> None:
    several = "several frameworks have a task 't1': F1, F2; name one"
    async with serving(ScriptedOperator()) as operator:
        operator.answers[pb.KillTaskRequest] = InvalidRequest(several)
        done = await croupier("kill", "t1", "--master", operator.address)
        assert done == Ended(1, "", f"croupier: {several} by --framework\n")


@pytest.mark.parametrize("error", [InvalidRequest("no"), Conflict("no")])
async def test_a_refusal_by_the_master_is_exit_code_1(error: Exception) -> None:
    async with serving(ScriptedOperator()) as operator:
        operator.answers[pb.KillTaskRequest] = error
        operator.answers[pb.UpdateRolesRequest] = error
        master = ("--master", operator.address)
        assert await croupier("kill", "t1", *master) == Ended(1, "", "croupier: no\n")
        done = await croupier("quota", "set", "a", "--limit", "cpus:1", *master)
        assert done == Ended(1, "", "croupier: no\n")
        operator.answers[pb.GetMasterRequest] = error
        assert await croupier("agents", *master) == Ended(1, "", "croupier: no\n")


async def test_an_unknown_host_is_one_line() -> None:
    done = await croupier("agents", "--master", "nosuch.invalid")
    line = "croupier: cannot find the host nosuch.invalid of the master nosuch.invalid:5050\n"
    assert done == Ended(1, "", line)


async def test_a_server_of_another_protocol_is_not_a_master() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        done = await croupier("agents", "--master", address)
    assert done == Ended(1, "", f"croupier: the server at {address} is not a Croupier master\n")


async def test_why_prints_a_json_object() -> None:
    done = await croupier("why", "--help")
    assert "Print JSON." in done.out
    assert "list" not in done.out
    async with serving(ScriptedOperator()) as operator:
        framework = pb.FrameworkView()
        framework.framework.framework_id = "f1"
        listed = pb.ListFrameworksResponse(frameworks=[framework])
        operator.answers[pb.ListFrameworksRequest] = listed
        done = await croupier("why", "f1", "--json", "--master", operator.address)
    assert isinstance(json.loads(done.out), dict)


BOUND_S = 5.0


def follow(operator: ScriptedOperator, leader: str) -> None:
    operator.answers[pb.GetMasterRequest] = pb.GetMasterResponse(leader_address=leader)


@asynccontextmanager
async def operators(number: int) -> AsyncIterator[list[ScriptedOperator]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(serving(ScriptedOperator())) for _ in range(number)]


def listed(operator: ScriptedOperator) -> bool:
    return any(isinstance(asked, pb.ListAgentsRequest) for asked in operator.asked)


async def test_the_leader_is_found_in_a_list_and_behind_a_follower() -> None:
    async with operators(2) as (follower, leader):
        follow(follower, leader.address)
        for known in (f"{follower.address},{leader.address}", follower.address):
            done = await croupier("agents", "--master", known)
            assert done.code == 0, done.err
            assert listed(leader)
            assert not listed(follower)
            leader.asked.clear()


async def test_a_dead_or_hanging_master_does_not_delay_the_others() -> None:
    [dead] = free_addresses(1)
    async with operators(2) as (hanging, leader):
        hanging.hangs = True
        begun = time.monotonic()
        done = await croupier("agents", "--master", f"{dead},{hanging.address},{leader.address}")
        assert done.code == 0, done.err
        assert time.monotonic() - begun < BOUND_S


async def test_a_command_waits_for_a_short_election() -> None:
    async with operators(2) as (one, other):
        follow(one, "")
        follow(other, "")
        running = asyncio.create_task(croupier("agents", "--master", one.address))
        await eventually(lambda: len(one.asked) >= 3)
        follow(one, other.address)
        other.answers[pb.GetMasterRequest] = pb.GetMasterResponse(leader=True)
        done = await running
        assert done.code == 0, done.err
        assert listed(other)


async def test_no_leader_is_one_line_within_five_seconds() -> None:
    async with operators(1) as (follower,):
        follow(follower, "")
        begun = time.monotonic()
        done = await croupier("agents", "--master", follower.address)
        assert time.monotonic() - begun < BOUND_S
        assert done.code == 1
        assert done.err == (
            f"croupier: no master leads right now, say {follower.address}; waited 3.5 s for one to"
            " be elected; try again in a few seconds\n"
        )


async def test_an_unreachable_leader_is_named_with_its_follower() -> None:
    [dead] = free_addresses(1)
    async with operators(1) as (follower,):
        follow(follower, str(dead))
        done = await croupier("agents", "--master", follower.address)
        assert done.code == 1
        assert done.err == (
            f"croupier: {dead} leads, says {follower.address}, but: cannot reach a master at"
            f" {dead} (is one running there?)\n"
        )


EVIL = "x\x1b[2J\x07\u202e\r"
SHOWN = "x\\x1b[2J\\x07\\u202e\\r"


@pytest.fixture
async def operator() -> AsyncIterator[ScriptedOperator]:
    attribute = resources_pb2.Attribute(name="a" + EVIL, text=EVIL)
    agent = framework_pb2.AgentDescription(agent_id="a1", hostname=EVIL, attributes=[attribute])
    blocker = pb.DrainBlocker(framework_id="f1", task_id=EVIL, reason=EVIL)
    drain = pb.Drain(tasks_left=1, blockers=[blocker])
    agent_view = pb.AgentView(agent=agent, state="connected", drain=drain)
    info = framework_pb2.FrameworkInfo(framework_id="f1", name=EVIL, roles=["ads"])
    framework = pb.FrameworkView(framework=info, state="disconnected")
    task = pb.TaskView(
        framework_id="f1",
        agent_id="a1",
        role="ads",
        task=task_pb2.TaskInfo(task_id=EVIL, name=EVIL),
        status=task_pb2.TaskStatus(state=task_pb2.TASK_RUNNING, message=EVIL),
    )
    reason = pb.PassedOver(cause=EVIL, role="ads", detail=EVIL)
    async with serving(ScriptedOperator()) as operator:
        operator.answers |= {
            pb.ListAgentsRequest: pb.ListAgentsResponse(agents=[agent_view]),
            pb.ListFrameworksRequest: pb.ListFrameworksResponse(frameworks=[framework]),
            pb.ListTasksRequest: pb.ListTasksResponse(tasks=[task]),
            pb.ExplainRequest: pb.ExplainResponse(reasons=[reason], framework=framework),
            pb.KillTaskRequest: pb.KillTaskResponse(task=task),
            pb.DrainAgentRequest: pb.DrainAgentResponse(agent=agent_view),
            pb.DeactivateAgentRequest: pb.DeactivateAgentResponse(agent=agent_view),
            pb.MarkAgentGoneRequest: pb.MarkAgentGoneResponse(agent=agent_view),
            pb.UpdateRolesRequest: Conflict(EVIL),
        }
        yield operator


@pytest.mark.parametrize(
    "words",
    [
        ("agents",),
        ("frameworks",),
        ("tasks",),
        ("why", "f1"),
        ("kill", "t1"),
        ("agent", "show", "a1"),
        ("agent", "deactivate", "a1"),
        ("agent", "gone", "a1", "--dry-run"),
        ("agent", "gone", "a1", "--yes"),
        ("drain", "a1"),
        ("drain", "a1", "--dry-run"),
        ("framework", "teardown", "f1", "--dry-run"),
        ("weights", "set", "ads", "2"),
        ("agents", "--json"),
    ],
)
async def test_no_command_prints_control_characters(
    operator: ScriptedOperator, words: tuple[str, ...]
) -> None:
    done = await croupier(*words, "--master", operator.address)
    printed = done.out + done.err
    assert all(char.isprintable() or char == "\n" for char in printed), ascii(printed)
    assert SHOWN in printed or "--json" in words


async def test_messages_of_a_run_are_escaped() -> None:
    async with Master() as master, started("run", "--master", master.address, "--", "true") as run:
        await master.subscribed()
        master.offer("cpus:1;mem:1GB", http_address="127.0.0.1:9")
        await master.update("true-9b5d", TaskState.LOST, message=EVIL)
        done = await ended(run)
    assert done.code == 1
    assert f"true-9b5d: LOST: {SHOWN}\n" in done.err


async def test_text_logs_are_escaped() -> None:
    program = (
        "import sys, structlog\n"
        "from croupier.process.logging import configure_logging\n"
        "configure_logging('text', 'info')\n"
        "log = structlog.get_logger()\n"
        f"evil = {EVIL!r}\n"
        "log.info('event', said=evil, many=[evil], word=evil.strip())\n"
        "try:\n    raise ValueError(evil)\nexcept ValueError:\n    log.exception('failed')\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stderr=asyncio.subprocess.PIPE
    )
    _, err = await asyncio.wait_for(process.communicate(), 20)
    text = err.decode()
    assert all(char.isprintable() or char == "\n" for char in text), ascii(text)
    assert f"said={SHOWN!r}" in text or f"said={SHOWN}" in text or f"said='{SHOWN}'" in text
    assert f"ValueError: {SHOWN}\n" in text
