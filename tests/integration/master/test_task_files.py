"""Output and files of tasks through a real master, from a real agent that restarts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio

from croupier.agent.app import AgentDaemon
from croupier.agent.config import AgentConfig
from croupier.agent.probe import GivenResources
from croupier.agent.recover import clean_up
from croupier.ctl.task_output import terminal_text
from croupier.master.app import MasterDaemon
from croupier.net.credentials import ClientSecurity
from croupier.net.transport import make_channel
from croupier.v1 import framework_pb2, task_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.harness.agent_defaults import SAME_USER
from tests.harness.agents import RESOURCES, UNISOLATED, running_agent
from tests.harness.command import Ended, croupier, ended, line, started
from tests.harness.masters import ANY_PORT, RawFramework, running_master

_STATUS = grpc.StatusCode


@asynccontextmanager
async def launched(
    master: MasterDaemon, line: str, security: ClientSecurity | None = None, task_id: str = "t1"
) -> AsyncIterator[RawFramework]:
    """Launch a task of a new framework on the next offer."""
    async with RawFramework(master.address, security) as framework:
        await framework.subscribe(roles=["ads"])
        offer = await framework.offer()
        task = task_pb2.TaskInfo(
            task_id=task_id, command=task_pb2.Command(shell=line), resources=offer.resources
        )
        launch = framework_pb2.Operation(launch=framework_pb2.Launch(tasks=[task]))
        verdict = await framework.call(
            accept={"offer_ids": [offer.offer_id], "operations": [launch]}
        )
        assert not verdict.HasField("error"), verdict
        yield framework


@asynccontextmanager
async def operator(
    master: MasterDaemon, security: ClientSecurity | None = None
) -> AsyncIterator[OperatorServiceStub]:
    async with make_channel(master.address, security) as channel:
        yield OperatorServiceStub(channel)


async def text_of(stream: Any) -> bytes:
    """Return all that a stream sends; without a gap."""
    found, end = b"", None
    async with asyncio.timeout(20):
        while (answer := await stream.read()) is not grpc.aio.EOF:
            assert end in (None, answer.offset)
            end = answer.offset + len(answer.data)
            found += answer.data
    return found


async def begun(stream: Any) -> bytes:
    """Return the first bytes that a stream sends."""
    async with asyncio.timeout(20):
        while not (answer := await stream.read()).data:
            pass
    return bytes(answer.data)


async def refusal(call: Any) -> tuple[Any, str]:
    try:
        async with asyncio.timeout(20):
            await (call.read() if hasattr(call, "read") else call)
    except grpc.aio.AioRpcError as error:
        return error.code(), str(error.details())
    raise AssertionError("it was not refused")


def read(stub: Any, **request: Any) -> Any:
    return stub.ReadTaskFile(pb.ReadTaskFileRequest(**{"task_id": "t1", **request}))


async def test_output_and_files_of_a_task(tmp_path: Path) -> None:
    command = "mkdir d; printf 0123456789 > 'd/a b'; seq 5; while ! test -e go; do sleep 0.05; done"
    async with (
        running_master() as master,
        running_agent(tmp_path / "work", master.address),
        launched(master, command) as framework,
        operator(master) as stub,
    ):
        follower = read(stub, path="stdout", follow=True)
        first = await begun(follower)
        listed = await stub.ListTaskFiles(pb.ListTaskFilesRequest(task_id="t1", path="d"))
        assert [(each.name, each.kind, each.size) for each in listed.files] == [("a b", "file", 10)]
        assert await text_of(read(stub, path="d/a b", offset=2, limit=3)) == b"234"
        assert await text_of(read(stub, path="stdout", tail_lines=2)) == b"4\n5\n"
        assert await text_of(read(stub, path="stdout", tail_bytes=4)) == b"4\n5\n"
        for path, code in (
            ("none", _STATUS.NOT_FOUND),
            ("../x", _STATUS.INVALID_ARGUMENT),
            ("", _STATUS.INVALID_ARGUMENT),
        ):
            assert (await refusal(read(stub, path=path)))[0] is code
        assert (await refusal(read(stub, task_id="t2", path="stdout")))[0] is _STATUS.NOT_FOUND
        await check_http(master, f"/api/v1/tasks/{framework.framework_id}/t1")
        await check_commands(master, tmp_path)
        home = tmp_path / "work" / "sandboxes" / framework.framework_id / "t1"
        async with started("logs", "-f", "-n1", "t1", f"--master={master.address}") as logs:
            assert await line(logs) == "5\n"
            (home / "go").touch()
            assert await ended(logs) == Ended(0, "", "")
        assert first + await text_of(follower) == b"1\n2\n3\n4\n5\n"
        # Its end is not acknowledged, and its sandbox exists still.
        assert await text_of(read(stub, path="stdout")) == b"1\n2\n3\n4\n5\n"


async def check_http(master: MasterDaemon, path: str) -> None:
    """Read output and files by the HTTP API."""
    root = f"http://{master.http_address}{path}"
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session:

        async def get(tail: str, **headers: str) -> tuple[int, bytes, Any]:
            async with session.get(root + tail, headers=headers) as answer:
                return answer.status, await answer.read(), answer.headers

        status, body, headers = await get("/output/stdout?tail=2")
        assert (status, body) == (200, b"4\n5\n")
        assert (headers["Croupier-Offset"], headers["Croupier-Size"]) == ("6", "10")
        assert headers["Content-Type"] == "application/octet-stream"
        assert "sandbox" in headers["Content-Security-Policy"]
        status, body, headers = await get("/files/d/a%20b", Range="bytes=2-4")
        assert (status, body, headers["Content-Range"]) == (206, b"234", "bytes 2-4/10")
        status, body, headers = await get("/files/d/a%20b", Range="bytes=10-")
        assert (status, headers["Content-Range"]) == (416, "bytes */10")
        status, body, _ = await get("/files?path=d")
        assert (status, json.loads(body)["items"][0]["name"]) == (200, "a b")
        for tail, expected in (
            ("/files/none", 404),
            ("/files/..%2f..%2fx", 400),
            ("/output/secret", 404),
            ("/output/stdout?tail=1&offset=1", 400),
            ("/output/stdout?tail=-1", 400),
        ):
            status, body, _ = await get(tail)
            assert (status, "message" in json.loads(body)["error"]) == (expected, True), tail


async def check_commands(master: MasterDaemon, tmp_path: Path) -> None:
    """Read output and files by the command line."""
    at = f"--master={master.address}"
    assert await croupier("logs", "t1", "-n", "2", at) == Ended(0, "4\n5\n", "")
    assert (await croupier("files", "t1", "d", at)).out.split()[-1] == "b"
    done = await croupier("cp", "t1:d/a b", str(tmp_path), at)
    assert (done.code, (tmp_path / "a b").read_text()) == (0, "0123456789")
    missing = await croupier("logs", "nosuch", at)
    assert (missing.code, "croupier tasks lists the tasks" in missing.err) == (1, True)
    missing = await croupier("cp", "t1:nosuch", str(tmp_path), at)
    assert (missing.code, "croupier files t1 lists the files" in missing.err) == (1, True)
    refused = await croupier("cp", "t1:d", str(tmp_path), at)
    assert (refused.code, "croupier cp -r copies it" in refused.err) == (1, True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a b", "work"]
    for source, local in (("t1:d", tmp_path), ("t1:", tmp_path / "all"), ("t1:d/a b", tmp_path)):
        assert (await croupier("cp", "-r", source, str(local), at)).code == 0, source
    for copy in ("d/a b", "all/d/a b", "a b"):
        assert (tmp_path / copy).read_text() == "0123456789"
    assert (await croupier("cp", "-r", "t1:none", str(tmp_path), at)).code == 1
    assert (await croupier("cp", "-r", "t1:d", "-", at)).code == 2


def test_a_terminal_gets_no_control_characters() -> None:
    change = terminal_text()
    assert change(b"a\tb\n\x1b[31m") == b"a\tb\n\\x1b[31m"
    # A character may be split; a byte that is no UTF-8 is replaced.
    assert change(b"\xc3") + change(b"\xa4\r\xff") == "\u00e4\\r\ufffd".encode()


async def test_a_follower_survives_an_agent_that_returns_at_another_port(tmp_path: Path) -> None:
    line = "echo one; while ! test -e go; do sleep 0.05; done; echo two"
    work = tmp_path / "work"
    async with running_master() as master, operator(master) as stub:
        agents = [leaving_agent(work, master) for _ in range(2)]
        try:
            async with agents[0] as agent:
                first_port = agent.http_address.port
                framework = launched(master, line)
                launch = await framework.__aenter__()
                follower = read(stub, path="stdout", follow=True)
                assert await begun(follower) == b"one\n"
            async with agents[1] as agent:
                assert agent.http_address.port != first_port
                (work / "sandboxes" / launch.framework_id / "t1" / "go").touch()
                assert await text_of(follower) == b"two\n"
                await framework.__aexit__(None, None, None)
        finally:
            await clean_up(work)


@asynccontextmanager
async def leaving_agent(work: Path, master: MasterDaemon) -> AsyncIterator[AgentDaemon]:
    """Run an agent that leaves its tasks to the next one."""
    config = AgentConfig(
        master=(master.address,),
        http=ANY_PORT,
        work_dir=work,
        resources=GivenResources.parse(RESOURCES),
        isolate=UNISOLATED,
        users=SAME_USER,
    )
    agent, stop = AgentDaemon(config), asyncio.Event()
    try:
        await agent.start()
        serving = asyncio.create_task(agent.run(stop))
        yield agent
        stop.set()
        await serving
    finally:
        await agent.stop()


async def test_croupier_run_prints_all_from_an_agent_that_returns_at_another_port(
    tmp_path: Path,
) -> None:
    go = tmp_path / "go"
    shell = f"echo one; while ! test -e {go}; do sleep 0.05; done; echo two"
    async with running_master() as master:
        try:
            async with started(
                "run", f"--master={master.address}", "--mem=32MB", "--shell", "--", shell
            ) as run:
                async with leaving_agent(tmp_path / "work", master):
                    assert await line(run) == "one\n"
                async with leaving_agent(tmp_path / "work", master):
                    go.touch()
                    done = await ended(run)
            assert (done.code, done.out) == (0, "two\n"), done
        finally:
            await clean_up(tmp_path / "work")
