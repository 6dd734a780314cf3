"""Agents prove who they are: they join with a token, or have a certificate with their id."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from croupier.agent import link
from croupier.agent.app import AgentDaemon
from croupier.agent.config import AgentConfig
from croupier.agent.credential import OwnTokenFile
from croupier.agent.probe import GivenResources
from croupier.master.core.access_records import TokenId, TokenKind
from croupier.master.core.agent_commands import MarkGone, OperateAgent
from croupier.master.core.token_commands import RevokeToken
from croupier.model.errors import InvalidRequest, PermissionDenied, Unauthenticated
from croupier.model.ids import AgentId
from croupier.model.principal import Principal, PrincipalName
from croupier.model.task import TaskState
from croupier.model.token import BearerToken
from croupier.net.address import Address
from croupier.net.client_session import SessionTimes
from croupier.net.credentials import create_token_file, make_token
from croupier.process.tls.flags import TlsFlags
from tests.harness.agent_defaults import SAME_USER
from tests.harness.agents import RESOURCES, UNISOLATED, running_agent
from tests.harness.certificates import PemFiles, authority
from tests.harness.eventually import eventually
from tests.harness.masters import ANY_PORT, running_master
from tests.harness.processes import is_running
from tests.harness.scripted_master import ScriptedMaster, shell
from tests.harness.secured import SecuredMaster, secured_master
from tests.integration.agent.conftest import Serving

ADMIN = Principal(PrincipalName("client/local-admin"))
QUICK = SessionTimes(
    connect_s=5, join_s=5, backoff_first_s=0.05, rejected_first_s=0.05, rejected_cap_s=0.1,
    settled_s=0.0,
)  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "TIMES", QUICK)


def config(work_dir: Path, master: Address, **more: Any) -> AgentConfig:
    resources = GivenResources.parse(RESOURCES)
    return AgentConfig(
        master=(master,),
        http=ANY_PORT,
        work_dir=work_dir,
        resources=resources,
        isolate=UNISOLATED,
        users=SAME_USER,
        **more,
    )


def join_file(secured: SecuredMaster, directory: Path, uses: int | None = None) -> Path:
    """Return a file with a new join token."""
    token = secured.token_for("", TokenKind.JOIN, uses_left=uses)
    path = directory / f"join-{token.token_id}"
    create_token_file(path, token)
    return path


def tokens_of(secured: SecuredMaster, agent: AgentDaemon) -> BearerToken:
    record = secured.state.tokens.of_agent(agent.state.agent_id)
    own = OwnTokenFile(agent._config.work_dir).current
    assert own is not None
    assert (record.token_id, record.hash) == (own.token.token_id, own.token.hash.hex())
    assert own.is_joined
    return own.token


async def fetched(agent: AgentDaemon, path: str) -> str:
    url = f"http://{agent.http_address}/{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as found:
        return await found.text()


async def test_an_agent_joins_once_and_keeps_its_token(tmp_path: Path) -> None:
    async with secured_master(tmp_path) as secured:
        join, work_dir = join_file(secured, tmp_path, uses=1), tmp_path / "work"
        address = secured.master.address
        with capture_logs() as said:
            agent = AgentDaemon(config(work_dir, address, join_token_file=join))
            await agent.start()
            await eventually(lambda: agent.link.is_registered)
            first, agent_id = tokens_of(secured, agent), agent.state.agent_id
            assert (work_dir / "token").stat().st_mode & 0o777 == 0o600
            await agent.stop()
        assert first.secret not in str(said)
        # The next life needs no join token.
        async with running_agent(work_dir, address) as again:
            await eventually(lambda: again.link.is_registered)
            assert (tokens_of(secured, again), again.state.agent_id) == (first, agent_id)
            assert await fetched(again, "readyz") == "ready\n"
            # It has a credential, so its metrics are not public.
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://{again.http_address}/metrics") as answer,
            ):
                assert answer.status == 401


async def test_an_agent_that_was_killed_while_it_joined_joins_again(tmp_path: Path) -> None:
    work_dir = tmp_path / "work"
    work_dir.mkdir()
    async with secured_master(tmp_path) as secured:
        join = join_file(secured, tmp_path, uses=1)
        # The master has accepted the token, and the agent had recorded nothing else.
        file = OwnTokenFile(work_dir)
        own = file.bind(AgentId("Abefore"))
        secured.token_for("agent/Abefore", TokenKind.AGENT)
        record = secured.state.tokens.of_agent(AgentId("Abefore"))
        secured.state.tokens.remove(record.token_id)
        secured.state.tokens.put(
            replace(record, token_id=TokenId(own.token.token_id), hash=own.token.hash.hex())
        )
        async with running_agent(work_dir, secured.master.address, join_token_file=join) as agent:
            await eventually(lambda: agent.link.is_registered)
            assert agent.state.agent_id == "Abefore"
            assert tokens_of(secured, agent) == own.token


async def test_a_rejected_agent_says_why_and_recovers(tmp_path: Path) -> None:
    async with secured_master(tmp_path) as secured:
        bad = tmp_path / "bad"
        create_token_file(bad, make_token())
        with capture_logs() as said:
            async with running_agent(
                tmp_path / "work", secured.master.address, join_token_file=bad
            ) as agent:
                await eventually(lambda: agent.link.rejection)
                assert "rejected by the master: the token is unknown" in await fetched(
                    agent, "readyz"
                )
                bad.unlink()
                create_token_file(bad, secured.token_for("", TokenKind.JOIN))
                await eventually(lambda: agent.link.is_registered)
                assert await fetched(agent, "readyz") == "ready\n"
                # A revoked token ends the session; the join token gives access again.
                own = tokens_of(secured, agent)
                token_id = TokenId(own.token_id)
                await secured.master.leadership.ask(
                    lambda number: RevokeToken(number, token_id, 1, ADMIN)
                )
                await eventually(lambda: secured.state.tokens.get(token_id) is None)
                await eventually(lambda: secured.state.tokens.get(token_id) is not None)
                await eventually(lambda: agent.link.is_registered)
                assert tokens_of(secured, agent) == own
    rejected = [line for line in said if line["event"] == "credential_rejected"]
    assert rejected
    assert {line["log_level"] for line in rejected} == {"error"}


async def test_without_authentication_a_join_token_is_not_needed(tmp_path: Path) -> None:
    join = tmp_path / "join"
    create_token_file(join, make_token())
    async with (
        running_master() as master,
        running_agent(tmp_path / "work", master.address, join_token_file=join) as agent,
    ):
        await eventually(lambda: agent.link.is_registered)


async def test_an_agent_that_an_operator_removed_joins_under_another_id(tmp_path: Path) -> None:
    async with secured_master(tmp_path) as secured:
        join = join_file(secured, tmp_path)
        async with running_agent(
            tmp_path / "work", secured.master.address, join_token_file=join
        ) as agent:
            await eventually(lambda: agent.link.is_registered)
            first = agent.state.agent_id
            await secured.master.leadership.ask(
                lambda number: OperateAgent(number, first, MarkGone(), "here", ADMIN)
            )
            # It names itself anew before its session ends.
            await eventually(
                lambda: (
                    agent.state.agent_id != first and agent.state.agent_id in secured.state.agents
                )
            )
            tokens_of(secured, agent)


async def test_an_agent_that_lost_its_token_with_its_id_joins_under_another_one(
    tmp_path: Path,
) -> None:
    async with secured_master(tmp_path) as secured:
        join, address = join_file(secured, tmp_path), secured.master.address
        async with running_agent(tmp_path / "work", address, join_token_file=join) as agent:
            await eventually(lambda: agent.link.is_registered)
            first, own = agent.state.agent_id, tokens_of(secured, agent)
            token = join.read_bytes()
            join.unlink()
            # Without a token, no stream can tell it that it was declared gone.
            token_id = TokenId(own.token_id)
            leadership = secured.master.leadership
            await leadership.ask(lambda number: RevokeToken(number, token_id, 1, ADMIN))
            await eventually(lambda: not agent.link.is_registered)
            await leadership.ask(
                lambda number: OperateAgent(number, first, MarkGone(), "here", ADMIN)
            )
            join.touch(0o600)
            join.write_bytes(token)
            await eventually(lambda: agent.link.is_registered)
            assert agent.state.agent_id != first
            tokens_of(secured, agent)


def tls_of(files: PemFiles) -> TlsFlags:
    return TlsFlags(tls_cert=files.cert, tls_key=files.key, tls_ca=files.ca)


async def test_a_certificate_gives_the_agent_its_id(tmp_path: Path) -> None:
    own = authority().issue(tmp_path / "a1", "agent/a1")
    other = authority().issue(tmp_path / "a2", "agent/a2")
    client = authority().issue(tmp_path / "c", "client/c")
    master_files = authority().issue(tmp_path / "m", "master/m1")
    work_dir = tmp_path / "work"
    async with running_master(tls=tls_of(master_files)) as master:
        agent = AgentDaemon(config(work_dir, master.address, tls=tls_of(own)))
        await agent.start()
        await eventually(lambda: agent.link.is_registered)
        assert agent.state.agent_id == "a1"
        assert not (work_dir / "token").exists()
        await agent.stop()
        for files, reason in ((other, "certificate is of agent a2.*--recover=cleanup"),
                              (client, "certificate of client/c, not of an agent")):  # fmt: skip
            refused = AgentDaemon(config(work_dir, master.address, tls=tls_of(files)))
            with pytest.raises(InvalidRequest, match=reason):
                await refused.start()
            await refused.stop()


async def test_a_rejected_agent_keeps_its_tasks(serving: Serving, master: ScriptedMaster) -> None:
    master.launch(shell("t1", "sleep 60"))
    running = await master.state("t1", TaskState.RUNNING)
    master.refusal = PermissionDenied("agent/a2 is not agent a1")
    master.hang_up(Unauthenticated("the token was revoked"))
    await eventually(lambda: serving.agent.link.rejection == "agent/a2 is not agent a1")
    assert is_running(running.pid)
    assert "\ncroupier_agent_rejected 1.0\n" in await fetched(serving.agent, "metrics")
    assert "rejected by the master: agent/a2 is not agent a1" in await fetched(
        serving.agent, "readyz"
    )
    master.refusal = None
    await eventually(lambda: serving.agent.link.is_registered)
    assert [task.task.task_id for task in master.session.register.tasks] == ["t1"]  # type: ignore[union-attr]


async def test_an_agent_without_a_credential_is_told_so(tmp_path: Path) -> None:
    async with (
        secured_master(tmp_path) as secured,
        running_agent(tmp_path / "work", secured.master.address) as agent,
    ):
        await eventually(lambda: "no credential" in agent.link.rejection)
        assert not secured.state.agents
