"""False, silent and several masters, closed pipes, and control characters in messages and logs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from croupier.model.task import TaskState
from croupier.net.address import Address
from croupier.net.transport import bind, free_addresses, make_server
from croupier.v1 import operator_pb2 as pb
from croupier.v1.framework_pb2 import AgentDescription
from tests.harness.command import Ended, croupier, ended, started
from tests.harness.eventually import eventually
from tests.harness.operators import ScriptedOperator, serving
from tests.harness.run_master import Master


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
        done = await croupier("agents", "--master", f"{dead},{hanging.address},{leader.address}")
        assert done.code == 0, done.err
        assert listed(leader)


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


async def test_no_leader_is_one_line() -> None:
    async with operators(1) as (follower,):
        follow(follower, "")
        done = await croupier("agents", "--master", follower.address)
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


async def test_a_silent_master_is_one_line() -> None:
    async with serving(ScriptedOperator()) as operator:
        operator.hangs = True
        done = await croupier("agents", "--master", operator.address)
    line = f"croupier: the master at {operator.address} did not answer within 3.5 s\n"
    assert done == Ended(1, "", line)


async def test_a_server_that_is_not_a_master_is_reported() -> None:
    server = make_server()
    address = f"127.0.0.1:{bind(server, Address('127.0.0.1', 0))}"
    await server.start()
    done = await croupier("agents", "--master", address)
    await server.stop(None)
    assert done == Ended(1, "", f"croupier: the server at {address} is not a Croupier master\n")


async def test_a_closed_pipe_is_not_an_error() -> None:
    agent = pb.AgentView(agent=AgentDescription(agent_id="a1", hostname="h"), state="connected")
    async with (
        operators(1) as (operator,),
        started("agents", "--master", operator.address) as process,
    ):
        operator.answers[pb.ListAgentsRequest] = pb.ListAgentsResponse(agents=[agent] * 8_000)
        assert process.stdout is not None
        assert process.stderr is not None
        await process.stdout.readline()
        process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
        assert await process.stderr.read() == b""
        assert await process.wait() == 141


@pytest.mark.parametrize("argv", [["--help"], ["run", "--help"], ["local", "--help"]])
async def test_help_needs_nothing_heavy(argv: list[str]) -> None:
    done = await croupier(*argv, PYTHONPROFILEIMPORTTIME="1")
    assert done.code == 0
    imported = {line.rpartition("|")[2].strip() for line in done.err.splitlines()}
    assert "cyclopts" in imported
    assert imported.isdisjoint({"grpc", "google.protobuf", "aiohttp", "structlog"})


EVIL = "x\x1b[2J\x07\u202e\r"
SHOWN = "x\\x1b[2J\\x07\\u202e\\r"


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
