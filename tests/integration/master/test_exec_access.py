"""Who may run commands beside tasks, what is audited, and which agent may call back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from croupier.master.access.rate_limits import Usage
from croupier.master.core.access_records import TokenId, TokenKind
from croupier.master.services.exec_messages import MAX_CHUNK
from croupier.model.access import Action
from croupier.net.credentials import ClientSecurity
from croupier.v1 import exec_pb2
from tests.harness.exec_scene import Scene, scene_of
from tests.harness.secured import SecuredMaster, bearing, secured_master

_STATUS = grpc.StatusCode


@asynccontextmanager
async def secured_scene(
    directory: Path,
) -> AsyncIterator[tuple[SecuredMaster, Scene, ClientSecurity]]:
    """A scene of `client/owner` with authentication; and the credential of its agent."""
    async with secured_master(directory, audit_log=directory / "audit") as secured:
        secured.allow("client/owner", [Action.REGISTER, Action.RUN_AS], "*")
        host = bearing(secured.token_for("agent/a1", TokenKind.AGENT))
        owner = bearing(secured.token_for("client/owner"))
        async with scene_of(secured.master, host, owner) as scene:
            yield secured, scene, host


async def test_who_may_run_commands_and_what_is_audited(tmp_path: Path) -> None:
    async with secured_scene(tmp_path) as (secured, scene, host):
        for group in ("operator", "viewer"):
            secured.join(group, f"client/{group}")
        secured.allow("client/debugger", [Action.EXEC], "role:ads")
        tokens = {
            name: bearing(secured.token_for(f"client/{name}"))
            for name in ("operator", "viewer", "other", "debugger", "owner")
        }
        refused = {
            "operator": (_STATUS.PERMISSION_DENIED, "client/operator may not exec role:ads"),
            "viewer": (_STATUS.PERMISSION_DENIED, "client/viewer may not exec role:ads"),
        }
        for name, expected in refused.items():
            assert await (await scene.caller(tokens[name])).ended() == expected
        # Another's task is like one that does not exist.
        hidden = await (await scene.caller(tokens["other"])).ended()
        missing = await (await scene.caller(tokens["owner"], task_id="t2")).ended()
        assert hidden == (missing[0], missing[1].replace("t2", "t1"))
        assert hidden[0] is _STATUS.NOT_FOUND
        # A command of the agent itself, or of a join token.
        assert (await (await scene.caller(host)).ended())[0] is _STATUS.NOT_FOUND
        for name in ("debugger", "owner"):
            caller, agent = await scene.begun(tokens[name], host, argv=["sh", "-c", "it's $me\n"])
            await agent.send(end=exec_pb2.ExecEnd(signal=9))
            assert (await caller.next()).end.signal == 9
            assert (await caller.ended())[0] is _STATUS.OK
    lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    found = [line for line in lines if "EXEC" in line["method"]]
    about = f"task:{scene.framework.framework_id}/t1,agent:a1"
    assert [
        (each["principal"], each["method"], each["object"], each["rule"], each["detail"])
        for each in found
    ] == [
        entry
        for name, rule in (("debugger", "r1"), ("owner", "owner"))
        for entry in (
            (
                f"client/{name}",
                "OperatorService/EXEC_START",
                about,
                rule,
                "sh -c 'it'\"'\"'s $me\n'",
            ),
            (f"client/{name}", "OperatorService/EXEC_END", about, rule, "signal 9"),
        )
    ]
    denied = [line for line in lines if line["method"] == "OperatorService/ExecTask"]
    # A line is written when its call has ended at the master, so those of two callers may swap.
    assert sorted((each["principal"], each["decision"]) for each in denied[:2]) == [
        ("client/operator", "deny"),
        ("client/viewer", "deny"),
    ]


async def test_only_the_ordered_agent_may_call_back(tmp_path: Path) -> None:
    async with secured_scene(tmp_path) as (secured, scene, host):
        owner = bearing(secured.token_for("client/owner"))
        caller = await scene.caller(owner)
        exec_id = (await scene.agent.next("exec")).exec.exec_id
        another = bearing(secured.token_for("agent/a2", TokenKind.AGENT))
        code, text = await (await scene.called_back(another, exec_id)).ended()
        assert (code, text) == (_STATUS.NOT_FOUND, "no command waits for this agent under this id")
        # These are refused before they send anything.
        assert (await scene.calling(owner).ended())[0] is _STATUS.PERMISSION_DENIED
        assert (await scene.calling(None).ended())[0] is _STATUS.UNAUTHENTICATED
        # The id is still valid for the agent that has the order.
        agent = await scene.called_back(host, exec_id)
        assert (await agent.next()).HasField("start")
        await agent.send(started=exec_pb2.ExecStarted())
        assert (await caller.next()).HasField("started")


async def test_a_command_counts_as_one_call_of_each_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with secured_scene(tmp_path) as (secured, scene, host):
        limiter = secured.master._security.limiter  # type: ignore[union-attr]
        admit, admitted, counted = limiter.admit, list[str](), list[int]()

        async def counting(name: str) -> Usage:
            admitted.append(name)
            return await admit(name)

        async def counting_calls(_: Usage, calls: int) -> None:
            counted.append(calls)

        monkeypatch.setattr(limiter, "admit", counting)
        monkeypatch.setattr(limiter, "counted", counting_calls)
        owner = bearing(secured.token_for("client/owner"))
        caller, agent = await scene.begun(owner, host, has_input=True)
        await caller.send(input=b"x" * MAX_CHUNK)
        assert len((await agent.next()).input) == MAX_CHUNK
        assert (admitted, counted) == (["client/owner", "agent/a1"], [])


async def test_a_withdrawn_permission_or_credential_ends_a_command(tmp_path: Path) -> None:
    async with secured_scene(tmp_path) as (secured, scene, host):
        secured.allow("client/debugger", [Action.EXEC], "role:ads")
        token = secured.token_for("client/debugger")
        caller, agent = await scene.begun(bearing(token), host)
        access = secured.state.access
        rules = {name: rule for name, rule in access.rules.items() if name != "r1"}
        secured.state.set_access(type(access)(access.is_on, access.groups, rules))
        code, text = await caller.ended()
        assert (code, text) == (_STATUS.PERMISSION_DENIED, "client/debugger may not exec role:ads")
        assert (await agent.ended())[0] is _STATUS.OK
        secured.state.set_access(access)
        caller, agent = await scene.begun(bearing(token), host)
        secured.state.tokens.remove(TokenId(token.token_id))
        assert (await caller.ended())[0] is _STATUS.UNAUTHENTICATED
        assert (await agent.ended())[0] is _STATUS.OK
