"""Who may use the gateway, and which master answers."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from croupier.master.config import MasterConfig
from croupier.master.core.access_records import TokenKind
from croupier.master.leadership.roster import Candidate, read_candidate
from croupier.mesos.fields import Json
from croupier.model.access import Action
from croupier.model.errors import InvalidRequest
from croupier.net.address import Address
from croupier.process.http.routes import Requirement
from croupier.process.tls.flags import TlsFlags
from tests.harness.certificates import authority
from tests.harness.elections import FakeElection, elected_master, leads
from tests.harness.masters import ANY_PORT, RawAgent, running_master
from tests.harness.mesos import RawScheduler, gateway, task
from tests.harness.secured import SecuredMaster, bearing, secured_master
from tests.integration.test_imports import loaded_by

OPEN = ("version", "health", "redirect")


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[SecuredMaster]:
    async with secured_master(tmp_path, mesos_listen=ANY_PORT) as secured:
        secured.allow("client/alice", [Action.REGISTER], "role:*")
        secured.allow("client/bob", [Action.REGISTER], "role:*")
        yield secured


async def test_the_password_of_basic_authentication_is_a_token(secured: SecuredMaster) -> None:
    at = gateway(secured.master)
    async with RawScheduler(at, secured.token_for("client/alice").text) as alice:
        await alice.subscribe()
        framework = secured.state.frameworks[alice.framework_id]
        assert framework.owner == "client/alice"
        assert await alice.call("SUPPRESS") == (202, "")
        async with RawScheduler(at, secured.token_for("client/bob").text) as bob:
            bob.framework_id, bob.stream_id = alice.framework_id, alice.stream_id
            status, text = await bob.call("TEARDOWN")
            assert (status, text) == (403, "the stream is another principal's")
            assert await bob.open(alice.framework_id) == 200
            assert "no framework" in (await bob.next("ERROR"))["error"]["message"]
        async with RawScheduler(at) as nobody:
            nobody.framework_id, nobody.stream_id = alice.framework_id, alice.stream_id
            assert (await nobody.call("TEARDOWN"))[0] == 401
        assert await alice.call("REVIVE") == (202, "")


@pytest.mark.parametrize("as_list", [False, True])
async def test_a_credential_in_the_body_stands_for_the_calls_of_its_stream(
    secured: SecuredMaster, as_list: bool
) -> None:
    token = secured.token_for("client/alice").text
    found: Json = {"principal": "alice", "secret": token}
    async with RawScheduler(gateway(secured.master)) as scheduler:
        subscribe = {"credentials": [found] if as_list else found}
        await scheduler.subscribe(subscribe=subscribe)
        assert await scheduler.call("SUPPRESS") == (202, "")
        scheduler.stream_id = "f" * 32
        assert (await scheduler.call("SUPPRESS"))[0] == 401


@pytest.mark.parametrize("secret", ["", "crp_wrong", "crp_aaaaaaaaaaaa_" + "a" * 43])
async def test_no_valid_credential_is_a_401(secured: SecuredMaster, secret: str) -> None:
    async with RawScheduler(gateway(secured.master), secret) as scheduler:
        assert await scheduler.open() == 401
        assert secret == "" or secret not in await scheduler.refusal()


async def test_a_caller_without_a_rule_is_refused(secured: SecuredMaster) -> None:
    token = secured.token_for("client/eve").text
    async with RawScheduler(gateway(secured.master), token) as eve:
        assert await eve.open() == 403
        assert "no rule allows client/eve to register" in await eve.refusal()


async def test_a_task_of_a_user_whom_no_rule_allows_is_unauthorized(
    secured: SecuredMaster,
) -> None:
    token = secured.token_for("client/alice").text
    own = secured.token_for("agent/a1", TokenKind.AGENT)
    async with (
        RawAgent(secured.master.address, bearing(own)) as agent,
        RawScheduler(gateway(secured.master), token) as alice,
    ):
        await agent.register()
        await alice.subscribe()
        offer = await alice.offer()
        await alice.accept(offer, task(offer, "t", command={"value": "true", "user": "root"}))
        status = (await alice.next("UPDATE"))["update"]["status"]
        assert (status["state"], status["reason"]) == ("TASK_ERROR", "REASON_TASK_UNAUTHORIZED")


async def test_a_large_body_of_nobody_is_not_read(secured: SecuredMaster) -> None:
    async with RawScheduler(gateway(secured.master)) as scheduler:
        call = {"type": "SUBSCRIBE", "subscribe": {"x": "x" * 200_000}}
        assert (await scheduler.post(call))[0] == 400


async def test_the_gateway_speaks_tls(tmp_path: Path) -> None:
    mine = authority().issue(tmp_path / "master", "master/m1")
    tls = TlsFlags(tls_cert=mine.cert, tls_key=mine.key, tls_ca=mine.ca)
    context = ssl.create_default_context(cafile=str(mine.ca))
    context.check_hostname = False
    async with (
        running_master(mesos_listen=ANY_PORT, tls=tls, auth=False) as master,
        RawScheduler(gateway(master), ssl=context) as scheduler,
    ):
        await scheduler.subscribe()
        assert await scheduler.call("SUPPRESS") == (202, "")


async def test_a_follower_that_knows_no_leader_holds_calls_for_a_moment() -> None:
    election = FakeElection()
    async with elected_master(election, mesos_listen=ANY_PORT) as master:
        root = f"http://{gateway(master)}"
        async with aiohttp.ClientSession() as http:
            async with http.get(f"{root}/version") as answer:
                assert answer.status == 200
            begun = time.monotonic()
            async with http.post(f"{root}/api/v1/scheduler") as answer:
                assert (answer.status, await answer.text()) == (503, "No leader elected")
            assert time.monotonic() - begun > 1


async def test_a_deposed_leader_ends_streams_without_an_error() -> None:
    election = FakeElection()
    async with elected_master(election, mesos_listen=ANY_PORT) as master:
        await election.elect()
        await leads(master, 1)
        async with RawScheduler(gateway(master)) as scheduler:
            await scheduler.subscribe()
            await election.elect_other(None)
            await scheduler.ended()
            assert {each["type"] for each in scheduler.heard} == {"SUBSCRIBED", "HEARTBEAT"}


def test_masters_tell_each_other_of_their_gateways() -> None:
    known = Candidate("10.0.0.1:5050", mesos="10.0.0.1:5055")
    assert read_candidate(known.address, known.encode()) == known
    odd = replace(known, mesos="http://x")
    assert read_candidate(odd.address, odd.encode()) is None


@pytest.mark.parametrize("more", [{}, {"auth": True}])
def test_an_exposed_gateway_needs_protection(more: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        MasterConfig(mesos_listen=Address("0.0.0.0", 5050), **more)


def test_a_master_without_the_flag_loads_nothing_of_the_gateway() -> None:
    statement = """
import asyncio
from croupier.master.app import MasterDaemon
from croupier.master.config import MasterConfig, StoreChoice
from croupier.net.address import Address
async def main():
    at = Address("127.0.0.1", 0)
    master = MasterDaemon(MasterConfig(listen=at, http=at, store=StoreChoice(None)))
    await master.start()
    http = master.http_address
    reader, writer = await asyncio.open_connection(http.host, http.port)
    writer.write(b"GET /healthz HTTP/1.0\\r\\n\\r\\n")
    assert b"ok" in await reader.read()
    writer.close()
    await master.stop()
import contextlib, io
with contextlib.redirect_stdout(io.StringIO()):
    asyncio.run(main())
"""
    loaded = loaded_by(statement)
    assert "aiohttp" in loaded
    assert not [name for name in loaded if ".mesos" in name]


async def test_only_what_says_nothing_of_the_cluster_needs_no_credential(
    secured: SecuredMaster,
) -> None:
    """The handler of the scheduler API checks the credential itself."""
    at = gateway(secured.master)
    async with aiohttp.ClientSession() as http, http.get(f"http://{at}/health"):
        pass
    server = secured.master._mesos.server if secured.master._mesos else None
    assert server is not None
    found = server.routes.requirements.items()
    open_paths = {path for path, requirement in found if requirement is Requirement.PUBLIC}
    named = {f"{prefix}/{name}" for prefix in ("", "/master") for name in OPEN}
    assert open_paths == {*named, "/api/v1/scheduler", "/healthz", "/readyz"}
