"""`croupier token` and `croupier access` against a scripted service."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from croupier.apps.controller.waiting import find_reason
from croupier.cli.connection import missing_credential
from croupier.cli.flags import Target
from croupier.model.errors import Conflict, PermissionDenied, Unauthenticated
from croupier.model.token import BearerToken
from croupier.net.address import Address
from croupier.net.credentials import create_token_file, make_token, read_token_file
from croupier.v1 import access_pb2 as pb
from croupier.v1 import operator_pb2
from tests.harness.scripted_access import ScriptedAccess, command, serving_access

Output = pytest.CaptureFixture[str]
HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("TLS_CA", "TLS_CERT", "TLS_KEY", "TLS_NAME", "TOKEN", "TOKEN_FILE"):
        monkeypatch.delenv(f"CROUPIER_{name}", raising=False)


async def test_a_token_is_printed_once_and_only_its_hash_is_sent(
    capsys: Output, access: ScriptedAccess
) -> None:
    access.caller.time_ms = 1_000
    words = ["token", "create", "client", "bob", "--expires", "2h", "--group", "operator"]
    assert await command(access, *words) == 0
    out, err = capsys.readouterr()
    token = BearerToken.parse(out.strip())
    [request] = access.created
    assert request.token_hash == token.hash
    assert request.token.token_id == token.token_id
    assert request.token.principal == "client/bob"
    assert request.token.expires_ms == 1_000 + 2 * HOUR_MS, "by the master's clock"
    assert token.secret.encode() not in request.SerializeToString()
    assert token.secret not in err
    assert list(access.policy.groups[0].members) == ["client/bob"]


async def test_a_token_is_written_to_a_new_private_file(tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "token"
    async with serving_access() as access:
        words = ["token", "create", "join", "--uses", "3", "--attribute", "rack:r1", "--json"]
        assert await command(access, *words, "--output", str(path)) == 0
        view = json.loads(capsys.readouterr().out)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert read_token_file(path).token_id == view["token_id"]
        assert view["file"] == str(path)
        assert "token" not in view
        [request] = access.created
        assert (request.token.uses_left, list(request.token.attributes)) == (3, ["rack:r1"])
        assert await command(access, *words, "--output", str(path)) == 1
        assert len(access.created) == 1, "the file is not overwritten"


async def test_no_file_is_left_if_the_master_refuses(
    tmp_path: Path, capsys: Output, access: ScriptedAccess
) -> None:
    access.error = Conflict("full")
    words = ["token", "create", "client", "bob", "--output", str(tmp_path / "token")]
    assert await command(access, *words) == 1
    assert "full" in capsys.readouterr().err
    assert not (tmp_path / "token").exists()


async def test_whoami_names_the_credential_and_hides_it(tmp_path: Path, capsys: Output) -> None:
    token, path = make_token(), tmp_path / "token"
    create_token_file(path, token)
    async with serving_access() as access:
        assert await command(access, "access", "whoami", "--token-file", str(path)) == 0
        out = capsys.readouterr().out
        assert out.startswith("client/alice\n")
        assert f"token: the token in {path} (--token-file)" in out
        assert token.secret not in out
        assert access.authorizations == [f"Bearer {token.text}"]


async def test_a_refusal_says_what_to_do(tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "token"
    create_token_file(path, make_token())
    async with serving_access() as access:
        access.error = Unauthenticated("no valid credential")
        assert await command(access, "access", "show") == 1
        err = capsys.readouterr().err
        assert "give --token-file or --tls-cert, or write" in err
        assert "config/croupier/credentials/127.0.0.1:" in err
        assert await command(access, "access", "show", "--token-file", str(path)) == 1
        assert (
            f"you used the token in {path} (--token-file): croupier doctor"
            in capsys.readouterr().err
        )
        access.error = PermissionDenied("no rule allows it")
        assert await command(access, "access", "show") == 1
        assert "croupier access whoami" in capsys.readouterr().err


async def test_a_run_of_a_restricted_caller_asks_why_it_waits(access: ScriptedAccess) -> None:
    access.operator.answers[operator_pb2.ExplainRequest] = operator_pb2.ExplainResponse(
        reasons=[operator_pb2.PassedOver(cause="does not fit", agents=3)]
    )
    target = Target((Address.parse(access.address),))
    missing = missing_credential(target)
    assert (await find_reason(target, "f1", missing)).text == "does not fit on 3 agents"
    access.check = pb.CheckAccessResponse(allowed=True)
    assert (await find_reason(target, "f1", missing)).text == "no agents are registered"
