"""`croupier doctor` on each fault that it looks for."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path

import pytest

from croupier.ctl.__main__ import main
from croupier.model.errors import Unauthenticated
from croupier.net.credentials import create_token_file, make_token
from croupier.net.transport import free_addresses
from croupier.v1 import operator_pb2
from croupier.v1.agent_pb2 import HealthProblem
from croupier.v1.framework_pb2 import AgentDescription
from tests.harness.certificates import HOUR, Authority, PemFiles, authority
from tests.harness.scripted_access import ScriptedAccess, command, serving_access

Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("TLS_CA", "TLS_CERT", "TLS_KEY", "TLS_NAME", "TOKEN", "TOKEN_FILE"):
        monkeypatch.delenv(f"CROUPIER_{name}", raising=False)


async def diagnosed(
    access: ScriptedAccess, capsys: Output, *words: str
) -> tuple[int, dict[str, list[str]]]:
    """Return the exit code, and the findings of each check as `outcome text -> advice`."""
    access.caller.time_ms = access.caller.time_ms or round(time.time() * 1000)
    code = await command(access, "doctor", "--json", *words)
    found: dict[str, list[str]] = {}
    for view in json.loads(capsys.readouterr().out):
        text = f"{view['outcome']} {view['text']} -> {view['advice']}"
        found.setdefault(view["check"], []).append(text)
    return code, found


async def test_a_healthy_cluster(tmp_path: Path, capsys: Output) -> None:
    token, path = make_token(), tmp_path / "token"
    create_token_file(path, token)
    async with serving_access() as access:
        described = AgentDescription(agent_id="a1", isolation=["memory", "disk-quota"])
        agent = operator_pb2.AgentView(agent=described, state="connected")
        access.operator.answers[operator_pb2.ListAgentsRequest] = operator_pb2.ListAgentsResponse(
            agents=[agent]
        )
        code, found = await diagnosed(access, capsys, "--token-file", str(path))
        assert await command(access, "doctor", "--token-file", str(path)) == 0
        lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert all(each.startswith("ok") for check in found.values() for each in check)
    checks = {
        "credentials",
        "files",
        "reachable",
        "leader",
        "clock",
        "principal",
        "agents",
        "isolation",
    }
    assert set(found) == checks
    assert token.secret not in "".join(lines)
    assert len(lines) == 8


async def test_no_credential_and_authentication_off_are_warnings(capsys: Output) -> None:
    async with serving_access() as access:
        access.caller.is_auth_on = False
        code, found = await diagnosed(access, capsys)
    assert code == 0
    assert "127.0.0.1:" in found["credentials"][0]
    assert found["credentials"][0].startswith("warn no certificate and no token")
    assert found["principal"][0].startswith("warn authentication is off")


@pytest.mark.parametrize(
    ("skew_s", "outcome", "side"),
    [(3600, "fail", "behind"), (-3600, "fail", "ahead of"), (60, "warn", "behind"),
     (2, "ok", "agree")],
)  # fmt: skip
async def test_clocks_are_compared(capsys: Output, skew_s: int, outcome: str, side: str) -> None:
    async with serving_access() as access:
        access.caller.time_ms = round((time.time() + skew_s) * 1000)
        _, found = await diagnosed(access, capsys)
    assert found["clock"][0].startswith(outcome)
    assert side in found["clock"][0]


async def test_missing_agents_and_a_token_that_expires_soon(capsys: Output) -> None:
    async with serving_access() as access:
        views = [operator_pb2.AgentView(state=state) for state in ("connected", "disconnected")]
        access.operator.answers[operator_pb2.ListAgentsRequest] = operator_pb2.ListAgentsResponse(
            agents=views
        )
        access.caller.expires_ms = round((time.time() + 3 * 86_400) * 1000)
        code, found = await diagnosed(access, capsys)
    assert code == 0
    assert found["agents"][0].startswith("warn 1 missing: 1 connected, 1 disconnected")
    assert "the token expires in 3 days" in found["principal"][0]


async def test_an_agent_that_was_drained_and_stopped_is_not_missing(capsys: Output) -> None:
    async with serving_access() as access:
        drained = operator_pb2.AgentView(state="unreachable", drain=operator_pb2.Drain(done=True))
        access.operator.answers[operator_pb2.ListAgentsRequest] = operator_pb2.ListAgentsResponse(
            agents=[operator_pb2.AgentView(state="connected"), drained]
        )
        _, found = await diagnosed(access, capsys)
    assert found["agents"][0].startswith("ok 1 connected, 1 stopped")


async def test_agents_with_problems(capsys: Output) -> None:
    problem = HealthProblem(part="disk", message="it is full")
    views = [
        operator_pb2.AgentView(
            agent=AgentDescription(agent_id=name), state="connected", problems=problems
        )
        for name, problems in (("well", []), ("sick", [problem]))
    ]
    async with serving_access() as access:
        access.operator.answers[operator_pb2.ListAgentsRequest] = operator_pb2.ListAgentsResponse(
            agents=views
        )
        _, found = await diagnosed(access, capsys)
    assert found["agents"] == [
        "ok 2 connected -> ",
        "warn agent sick reports a problem and gets no tasks -> croupier agent show sick",
    ]


async def test_a_refused_credential_fails(capsys: Output) -> None:
    async with serving_access() as access:
        access.error = Unauthenticated("unknown token")
        code, found = await diagnosed(access, capsys)
    assert code == 1
    assert found["leader"][-1].startswith("fail unknown token")


def test_a_dead_master_fails(capsys: Output) -> None:
    [dead] = free_addresses(1)
    assert main(["doctor", "--master", str(dead)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("fail  reachable") and "refused" in line for line in lines)


def test_unusable_files_fail_before_anything_is_sent(tmp_path: Path, capsys: Output) -> None:
    public = tmp_path / "token"
    public.touch(0o644)
    public.chmod(0o644)
    assert main(["doctor", "--token-file", str(public)]) == 1
    [_, line] = capsys.readouterr().out.splitlines()
    assert line.startswith("fail  files")
    assert "chmod 600" in line


def flags_of(files: PemFiles) -> list[str]:
    return ["--tls-ca", str(files.ca), "--tls-cert", str(files.cert), "--tls-key", str(files.key)]


async def test_certificates_that_expire_soon_are_warnings(tmp_path: Path, capsys: Output) -> None:
    own = authority().issue(tmp_path / "master", "master/m1")
    alice = authority().issue(tmp_path / "alice", "client/alice")
    alice.key.chmod(0o644)
    async with serving_access(own) as access:
        code, found = await diagnosed(access, capsys, *flags_of(alice))
    assert code == 0, found
    assert "warn" in found["certificate"][0]
    assert "(client/alice) is valid for" in found["certificate"][0]
    assert "croupier cert renew" in found["certificate"][0]
    assert "verified as master.test.croupier" in found["tls"][0]
    assert found["tls"][1].startswith("warn certificate of master 127.0.0.1")
    assert "chmod 600" in found["files"][0]


@pytest.mark.parametrize(
    ("role", "valid", "problem", "advice"),
    [
        ("client/eve", (-HOUR, HOUR), "mismatch", "no master of this cluster"),
        ("master/m1", (-2 * HOUR, -HOUR), "expired", "renew the master's certificate"),
        ("master/m1", (HOUR, 2 * HOUR), "not yet valid", "compare the clocks"),
    ],
)
async def test_a_false_or_expired_master_fails(
    tmp_path: Path,
    capsys: Output,
    role: str,
    valid: tuple[timedelta, timedelta],
    problem: str,
    advice: str,
) -> None:
    shown = authority().issue(tmp_path / "master", role, valid=valid)
    alice = authority().issue(tmp_path / "alice", "client/alice")
    async with serving_access(shown) as access:
        code, found = await diagnosed(access, capsys, *flags_of(alice))
    assert code == 1
    assert problem in found["tls"][0]
    assert advice in found["tls"][0]
    assert not access.authorizations


async def test_a_master_of_another_authority_fails(tmp_path: Path, capsys: Output) -> None:
    shown = Authority().issue(tmp_path / "master", "master/m1")
    alice = authority().issue(tmp_path / "alice", "client/alice")
    async with serving_access(shown) as access:
        code, found = await diagnosed(access, capsys, *flags_of(alice))
    assert code == 1
    assert "this is a false master" in found["tls"][0]


async def test_an_expired_certificate_of_the_client_fails(tmp_path: Path, capsys: Output) -> None:
    own = authority().issue(tmp_path / "master", "master/m1")
    expired = authority().issue(tmp_path / "old", "client/alice", valid=(-2 * HOUR, -HOUR))
    async with serving_access(own) as access:
        code, found = await diagnosed(access, capsys, *flags_of(expired))
    assert code == 1
    assert found["certificate"][0].startswith("fail")
    assert "refused this client's certificate" in found["leader"][0]
