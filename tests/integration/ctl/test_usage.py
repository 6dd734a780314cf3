"""Errors of a wrong command line, a wrong address and a refusal, and their exit codes."""

from __future__ import annotations

import asyncio
import json

import pytest

from croupier.model.errors import Conflict, InvalidRequest
from croupier.v1 import operator_pb2 as pb
from croupier.v1 import task_pb2
from tests.harness.command import Ended, croupier
from tests.harness.operators import ScriptedOperator, serving


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
