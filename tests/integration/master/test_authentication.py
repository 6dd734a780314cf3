"""Authenticated callers over real gRPC: streams, revocation, joining, followers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest

from croupier.master.access.rate_limits import RateLimiter
from croupier.master.core.access_records import TokenId, TokenKind, TokenRecord
from croupier.master.services import gate
from croupier.model.access import Action
from croupier.model.principal import PrincipalName
from croupier.model.token import BearerToken
from croupier.net.credentials import ClientSecurity, make_token
from croupier.net.transport import make_channel
from croupier.process.tls.flags import TlsFlags
from croupier.v1 import access_pb2, agent_pb2, framework_pb2, operator_pb2
from croupier.v1.access_pb2_grpc import AccessServiceStub
from croupier.v1.agent_pb2_grpc import AgentServiceStub
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.harness.certificates import authority
from tests.harness.elections import FakeElection, elected_master
from tests.harness.eventually import eventually
from tests.harness.masters import ANY_PORT, RawAgent, RawFramework, StreamEnded
from tests.harness.secured import SecuredMaster, bearing, secured_master
from tests.integration.master.test_frameworks import make_task

_STATUS = grpc.StatusCode


async def call(
    secured: SecuredMaster, security: ClientSecurity | None, stub: Any, method: str, request: Any
) -> Any:
    """Return the answer, or the status of a refusal."""
    async with make_channel(secured.master.address, security) as channel:
        try:
            return await getattr(stub(channel), method)(request, timeout=20)
        except grpc.aio.AioRpcError as error:
            return error.code()


async def who(secured: SecuredMaster, token: BearerToken) -> Any:
    request = access_pb2.WhoAmIRequest()
    return await call(secured, bearing(token), AccessServiceStub, "WhoAmI", request)


async def test_a_revoked_token_ends_its_live_streams(secured: SecuredMaster) -> None:
    secured.allow("client/f", [Action.REGISTER], "role:**")
    revoked, kept = secured.token_for("client/f"), secured.token_for("client/f")
    async with (
        RawFramework(secured.master.address, bearing(revoked)) as framework,
        RawFramework(secured.master.address, bearing(kept)) as other,
        RawAgent(
            secured.master.address, bearing(secured.token_for("agent/a1", TokenKind.AGENT))
        ) as agent,
    ):
        await framework.subscribe()
        await other.subscribe()
        await agent.register(agent_id="a1")
        answer = await call(
            secured,
            bearing(secured.admin),
            AccessServiceStub,
            "RevokeToken",
            access_pb2.RevokeTokenRequest(token_id=revoked.token_id),
        )
        assert answer.token.token_id == revoked.token_id
        await framework.next("error")
        status, text = await framework.ended()
        assert (status, "revoked" in text) == (_STATUS.UNAUTHENTICATED, True)
        # The others continue.
        assert (await other.call(suppress={})).seq == 1
    assert await who(secured, revoked) is _STATUS.UNAUTHENTICATED


async def test_an_expired_token_ends_its_live_stream_but_is_not_fatal(
    secured: SecuredMaster,
) -> None:
    secured.allow("client/f", [Action.REGISTER], "role:**")
    now_ms = secured.master._clock.wall_ms()
    token = secured.token_for("client/f", expires_ms=now_ms + 2_000)
    async with RawFramework(secured.master.address, bearing(token)) as framework:
        await framework.subscribe()
        await framework.next("error")
        status, text = await framework.ended()
    assert (status, "expired" in text) == (_STATUS.UNAVAILABLE, True)
    assert await who(secured, token) is _STATUS.UNAUTHENTICATED


async def test_an_agent_joins_once_and_then_is_itself(secured: SecuredMaster) -> None:
    join = secured.token_for("", TokenKind.JOIN, uses_left=1)
    own = make_token()
    request = agent_pb2.JoinRequest(agent_id="a1", token_id=own.token_id, token_hash=own.hash)
    for _ in range(2):
        answer = await call(secured, bearing(join), AgentServiceStub, "Join", request)
        assert answer == agent_pb2.JoinResponse()
    assert (await who(secured, own)).principal == "agent/a1"
    other = make_token()
    request = agent_pb2.JoinRequest(agent_id="a1", token_id=other.token_id, token_hash=other.hash)
    again = secured.token_for("", TokenKind.JOIN)
    refusal = await call(secured, bearing(again), AgentServiceStub, "Join", request)
    assert refusal is _STATUS.FAILED_PRECONDITION
    async with RawAgent(secured.master.address, bearing(own)) as agent:
        assert await agent.register(agent_id="a1") == "a1"


async def test_a_join_token_is_good_for_nothing_else(secured: SecuredMaster) -> None:
    join = secured.token_for("", TokenKind.JOIN)
    assert await who(secured, join) is _STATUS.PERMISSION_DENIED
    async with RawAgent(secured.master.address, bearing(join)) as agent:
        # The master may end the stream before it has read anything, or while it reads.
        for _ in range(2):
            with pytest.raises(StreamEnded, match="PERMISSION_DENIED"):
                await agent.register(agent_id="a1")


async def test_whoami_and_check_access_explain_the_rule(secured: SecuredMaster) -> None:
    secured.join("viewer", "client/v")
    token = secured.token_for("client/v")
    found = await who(secured, token)
    assert (found.principal, list(found.groups), found.credential, found.is_auth_on) == (
        "client/v",
        ["viewer"],
        "token",
        True,
    )
    request = access_pb2.CheckAccessRequest(action="view", object="role:ads")
    answer = await call(secured, bearing(token), AccessServiceStub, "CheckAccess", request)
    assert (answer.allowed, answer.rule) == (True, "viewer")
    request = access_pb2.CheckAccessRequest(action="kill", object="role:ads")
    answer = await call(secured, bearing(token), AccessServiceStub, "CheckAccess", request)
    assert (answer.allowed, answer.rule) == (False, "")
    assert answer.reason == "no rule allows client/v (in viewer) to kill role:ads"
    # Only an administrator asks about others.
    request.principal = "client/other"
    answer = await call(secured, bearing(token), AccessServiceStub, "CheckAccess", request)
    assert answer is _STATUS.PERMISSION_DENIED


async def test_the_policy_is_changed_and_tokens_are_listed(secured: SecuredMaster) -> None:
    admin = bearing(secured.admin)
    rule = access_pb2.Rule(
        name="ads", subject="client/bob", actions=["register"], object="role:ads"
    )
    request = access_pb2.UpdatePolicyRequest(
        changes=[access_pb2.PolicyChange(set_rule=rule)], dry_run=True
    )
    answer = await call(secured, admin, AccessServiceStub, "UpdatePolicy", request)
    assert list(answer.policy.rules) == [rule]
    empty = access_pb2.GetPolicyRequest()
    assert not (await call(secured, admin, AccessServiceStub, "GetPolicy", empty)).rules
    request.dry_run = False
    await call(secured, admin, AccessServiceStub, "UpdatePolicy", request)
    known = await call(secured, admin, AccessServiceStub, "GetPolicy", empty)
    assert list(known.rules) == [rule]
    assert [each.name for each in known.groups] == ["admin", "operator", "viewer"]
    token = make_token()
    wire = access_pb2.Token(
        token_id=token.token_id, kind=access_pb2.TOKEN_KIND_CLIENT, principal="client/bob"
    )
    create = access_pb2.CreateTokenRequest(token=wire, token_hash=token.hash)
    await call(secured, admin, AccessServiceStub, "CreateToken", create)
    listed = await call(
        secured, admin, AccessServiceStub, "ListTokens", access_pb2.ListTokensRequest()
    )
    assert [each.principal for each in listed.tokens] == ["client/bob"]
    assert listed.tokens[0].created_by == "client/local-admin"
    assert token.secret not in str(listed)


async def test_a_malformed_request_is_refused_after_authentication(secured: SecuredMaster) -> None:
    for security, status in (
        (bearing(secured.admin), _STATUS.INVALID_ARGUMENT),
        (None, _STATUS.UNAUTHENTICATED),
    ):
        async with make_channel(secured.master.address, security) as channel:
            method: Any = channel.unary_unary("/croupier.v1.OperatorService/KillTask")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await method(b"\xff\xff\xff", timeout=20)
            assert caught.value.code() is status


async def test_a_follower_tells_a_false_token_nothing_of_the_masters() -> None:
    election, leader, good, bad = FakeElection(), "127.0.0.1:7", make_token(), make_token()
    record = TokenRecord(
        TokenId(good.token_id), TokenKind.CLIENT, PrincipalName("client/a"), good.hash.hex(), 0
    )

    async def find_token(token_id: TokenId) -> TokenRecord | None:
        return record if token_id == record.token_id else None

    async with elected_master(election, auth=True) as master, aiohttp.ClientSession() as http:
        await election.elect_other(leader)
        assert master._security is not None
        master._security.authenticator.find_token = find_token
        for token, is_told in ((good, True), (bad, False)):
            headers = {"Authorization": f"Bearer {token.text}"}
            for path in ("/api/v1/masters", "/api/v1/tasks"):
                url = f"http://{master.http_address}{path}"
                async with http.get(url, headers=headers) as answer:
                    assert (leader in await answer.text()) == is_told, (path, is_told)
                    assert answer.status == (200 if is_told and "masters" in path else 503)
            async with make_channel(master.address, ClientSecurity(token=token.text)) as channel:
                ask = OperatorServiceStub(channel)
                found = await ask.GetMaster(operator_pb2.GetMasterRequest())
                assert found.leader_address == (leader if is_told else "")
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await ask.ListAgents(operator_pb2.ListAgentsRequest())
                assert (leader in str(refused.value.details())) == is_told


async def test_a_follower_redirects_credentials_that_it_cannot_check(tmp_path: Path) -> None:
    own = authority().issue(tmp_path / "master", "master/m1")
    cert = authority().issue(tmp_path / "alice", "client/alice")
    tls = TlsFlags(tls_cert=own.cert, tls_key=own.key, tls_ca=own.ca)
    election, leader = FakeElection(), "127.0.0.1:7"
    options: dict[str, Any] = {"auth": True, "tls": tls, "token_listen": ANY_PORT}
    async with elected_master(election, **options) as master:
        await election.elect_other(leader)
        assert master.token_address is not None
        some, token = make_token(), ClientSecurity(own.ca, token=make_token().text)
        alice = ClientSecurity(cert.ca, cert.cert, cert.key)
        both = ClientSecurity(cert.ca, cert.cert, cert.key, token=some.text)
        # The leader's address is that of the listener that requires a certificate.
        for at, security, named in (
            (master.address, alice, leader),
            (master.address, both, leader),
            (master.token_address, token, ""),
        ):
            async with make_channel(at, security) as channel:
                ask = OperatorServiceStub(channel)
                answer = await ask.GetMaster(operator_pb2.GetMasterRequest())
                assert (answer.leader, answer.leader_address) == (False, named)
                assert not answer.master_id
                with pytest.raises(grpc.aio.AioRpcError, match="not the leader") as caught:
                    await ask.ListAgents(operator_pb2.ListAgentsRequest())
                assert caught.value.code() is _STATUS.UNAVAILABLE
                if security is not alice:
                    # Maybe a join token: the agent tries the next master.
                    with pytest.raises(grpc.aio.AioRpcError, match="not the leader"):
                        await AgentServiceStub(channel).Join(agent_pb2.JoinRequest())
            for peer in (RawFramework(at, security), RawAgent(at, security)):
                async with peer:
                    event: Any = await peer.next("error")
                    assert event.error.leader == named
        async with make_channel(master.token_address, ClientSecurity(own.ca)) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await OperatorServiceStub(channel).GetMaster(operator_pb2.GetMasterRequest())
            assert caught.value.code() is _STATUS.UNAUTHENTICATED


async def test_an_impostor_of_an_agent_is_refused_and_the_agent_stays(
    secured: SecuredMaster,
) -> None:
    address = secured.master.address
    own, evil = (secured.token_for(f"agent/{name}", TokenKind.AGENT) for name in ("a1", "a2"))
    async with (
        RawAgent(address, bearing(own)) as agent,
        RawAgent(address, bearing(evil)) as impostor,
        RawAgent(address, bearing(evil)) as deposer,
        RawAgent(address) as stranger,
    ):
        await agent.register(agent_id="a1")
        newest: dict[str, Any] = {"master_epoch": 2**64 - 1, "cluster": agent.heard.cluster}
        claims: list[tuple[RawAgent, dict[str, Any]]] = [
            (impostor, {}),
            (deposer, newest),
            (stranger, newest),
        ]
        for peer, claim in claims:
            with pytest.raises(StreamEnded):
                await peer.register(agent_id="a1", **claim)
        assert secured.state.agents["a1"].session is not None
        # The agent's own stream has not ended, and the master leads on.
        await agent.send(agent_pb2.Report(heartbeat=framework_pb2.Heartbeat()))
        assert secured.master.leadership.is_leader
    # The impostor's connection has not even made an agent.
    assert set(secured.state.agents) == {"a1"}


async def test_no_other_principal_takes_a_framework_over(secured: SecuredMaster) -> None:
    address = secured.master.address
    for name in ("owner", "other"):
        secured.allow(f"client/{name}", [Action.REGISTER], "role:**")
    owner, other = (bearing(secured.token_for(f"client/{name}")) for name in ("owner", "other"))
    async with (
        RawFramework(address, owner) as framework,
        RawFramework(address, other) as thief,
        RawFramework(address, bearing(secured.admin)) as admin,
    ):
        await framework.subscribe()
        for each in (thief, admin):
            with pytest.raises(StreamEnded):
                await each.subscribe(framework_id=framework.framework_id)
        assert (await framework.call(suppress={})).seq == 1
    # A new run of the owner's program takes over.
    async with RawFramework(address, owner) as again:
        subscribed = await again.subscribe(framework_id=framework.framework_id, client_id="2")
        assert subscribed.framework_id == framework.framework_id


async def test_refused_and_changing_calls_are_audited(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    async with secured_master(tmp_path, audit_log=log) as secured:
        secured.allow("client/f", [Action.REGISTER], "role:**")
        token = secured.token_for("client/f")
        gone = operator_pb2.MarkAgentGoneRequest(agent="a1")
        await call(secured, bearing(token), OperatorServiceStub, "MarkAgentGone", gone)
        await call(secured, None, OperatorServiceStub, "MarkAgentGone", gone)
        await call(secured, bearing(secured.admin), OperatorServiceStub, "MarkAgentGone", gone)
        async with RawFramework(secured.master.address, bearing(token)) as framework:
            await framework.subscribe()
            await framework.call(kill={"task_id": "t1"})
            await framework.call(suppress={})

        def lines() -> list[dict[str, Any]]:
            return [json.loads(line) for line in log.read_text().splitlines()]

        await eventually(lambda: len(lines()) == 5)
    assert log.stat().st_mode & 0o777 == 0o600
    found = [
        (line["principal"], line["method"], line["object"], line["decision"], line["result"])
        for line in lines()
    ]
    agent = "OperatorService/MarkAgentGone", "agent:a1"
    framework_id = framework.framework_id
    assert found == [
        ("client/f", *agent, "deny", "PERMISSION_DENIED"),
        ("", *agent[:1], "", "deny", "UNAUTHENTICATED"),
        ("client/local-admin", *agent, "undecided", "NOT_FOUND"),
        (
            "client/f",
            "FrameworkService/SUBSCRIBE",
            f"framework:{framework_id},role:*",
            "allow",
            "OK",
        ),
        ("client/f", "FrameworkService/KILL", "task:t1", "undecided", "NOT_FOUND"),
    ]
    assert lines()[2]["rule"] == "admin"
    text = log.read_text()
    assert token.secret not in text
    assert secured.admin.secret not in text


async def test_the_audit_log_names_the_framework_of_a_task_that_is_killed_by_its_id(
    tmp_path: Path,
) -> None:
    log = tmp_path / "audit.jsonl"
    async with secured_master(tmp_path, audit_log=log) as secured:
        admin = bearing(secured.admin)
        async with RawFramework(secured.master.address, admin) as framework:
            await framework.subscribe()
            await framework.call(submit={"tasks": [make_task("t1")]})
            kill = operator_pb2.KillTaskRequest(task_id="t1")
            await call(secured, admin, OperatorServiceStub, "KillTask", kill)
    killed = f"task:{framework.framework_id}/t1"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    method = "OperatorService/KillTask"
    assert [each["object"] for each in lines if each["method"] == method] == [killed]


async def status_without_a_request(secured: SecuredMaster, security: ClientSecurity | None) -> Any:
    """Begin a unary call, send no request, and return the status."""
    async with make_channel(secured.master.address, security) as channel:
        pending: Any = channel.stream_unary("/croupier.v1.OperatorService/ListAgents")()
        async with asyncio.timeout(30):
            return await pending.code(), await pending.details()


async def test_a_caller_without_a_credential_is_refused_before_its_request_is_read(
    tmp_path: Path,
) -> None:
    """Otherwise its 100 streams could hold 2 MiB each."""
    async with secured_master(tmp_path) as secured:
        code, _ = await status_without_a_request(secured, None)
    assert code is _STATUS.UNAUTHENTICATED


async def test_a_request_that_does_not_arrive_ends_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "REQUEST_S", 0.1)
    async with secured_master(tmp_path) as secured:
        code, text = await status_without_a_request(secured, bearing(secured.admin))
    assert (code, text) == (
        _STATUS.RESOURCE_EXHAUSTED, "the request did not arrive within 0.1 s"
    )  # fmt: skip


async def test_a_list_is_charged_for_the_state_that_it_reads(
    monkeypatch: pytest.MonkeyPatch, secured: SecuredMaster
) -> None:
    """Also if its caller may view nothing, and the answer is empty."""
    token = secured.token_for("client/nosy")
    charged: list[float] = []
    monkeypatch.setattr(RateLimiter, "read", lambda _self, _, read_s: charged.append(read_s))
    request = operator_pb2.ListRolesRequest()
    answer = await call(secured, bearing(token), OperatorServiceStub, "ListRoles", request)
    assert not answer.roles
    assert len(charged) == 1
    assert charged[0] > 0
    charged.clear()
    async with make_channel(secured.master.address, bearing(token)) as channel:
        watch = OperatorServiceStub(channel).WatchEvents(operator_pb2.WatchEventsRequest(limit=1))
        assert [each.events async for each in watch]
    assert len(charged) == 1
    assert charged[0] > 0
