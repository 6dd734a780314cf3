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


@pytest.mark.parametrize(
    "words",
    ["create client a/b", "create client bob --expires soon", "create join --uses -1",
     "create join --attribute rack"],
)  # fmt: skip
async def test_malformed_tokens_are_refused(words: str, access: ScriptedAccess) -> None:
    assert await command(access, "token", *words.split()) == 2
    assert not access.created


async def test_tokens_are_listed_and_revoked_by_id_and_principal(
    capsys: Output, access: ScriptedAccess
) -> None:
    for number, name in enumerate(("bob", "bob", "ann")):
        access.tokens[f"{number:08x}"] = pb.Token(
            token_id=f"{number:08x}",
            kind=pb.TOKEN_KIND_CLIENT,
            principal=f"client/{name}",
            expires_ms=HOUR_MS,
        )
    join = pb.Token(token_id="0000000a", kind=pb.TOKEN_KIND_JOIN, attributes=["rack:r1"])
    access.tokens["0000000a"] = join
    assert await command(access, "token", "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert "any number of agents, rack:r1" in lines[-1]
    assert await command(access, "token", "revoke", "client/bob", "--dry-run") == 0
    assert len(access.tokens) == 4
    assert await command(access, "token", "revoke", "client/bob") == 0
    assert await command(access, "token", "revoke", "00000002") == 0
    assert list(access.tokens) == ["0000000a"]
    assert await command(access, "token", "revoke", "client/bob") == 1
    assert await command(access, "token", "list", "--json") == 0


async def test_a_rule_is_granted_and_revoked(capsys: Output) -> None:
    grant = ["access", "grant", "ads", "--to", "client/bob", "--action", "register,kill"]
    grant += ["--on", "role:ads"]
    text = "client/bob may register, kill on role:ads"
    async with serving_access() as access:
        assert await command(access, *grant, "--dry-run") == 0
        assert f"rule ads is added: {text}" in capsys.readouterr().out
        assert not access.policy.rules
        assert await command(access, *grant) == 0
        assert [rule.name for rule in access.policy.rules] == ["ads"]
        capsys.readouterr()
        assert await command(access, "access", "show") == 0
        shown = capsys.readouterr().out
        assert "client/bob" in shown
        assert "group:viewer" in shown, "built-in rules are shown, too"
        assert await command(access, "access", "revoke", "ads", "--json") == 0
        view = json.loads(capsys.readouterr().out)
        assert view["changes"] == [f"rule ads is removed: {text}"]
        assert not access.policy.rules


@pytest.mark.parametrize(
    "words",
    ["grant admin --to client/bob --action kill --on role:ads",
     "grant r --to bob --action kill --on role:ads",
     "grant r --to client/bob --action fly --on role:ads",
     "grant r --to client/bob --action kill --on agent:a1",
     "check client/bob kill agent:a1", "check bob kill role:ads", "group add g bob"],
)  # fmt: skip
async def test_malformed_rules_are_refused_before_they_are_sent(
    words: str, access: ScriptedAccess
) -> None:
    assert await command(access, "access", *words.split()) == 2
    assert not access.authorizations


async def test_members_are_added_and_removed(capsys: Output, access: ScriptedAccess) -> None:
    assert await command(access, "access", "group", "add", "operator", "client/bob") == 0
    assert capsys.readouterr().out == "group operator: client/bob is added\n"
    assert await command(access, "access", "group", "add", "ads", "client/ann") == 0
    assert {group.name for group in access.policy.groups} == {"operator", "ads"}
    assert await command(access, "access", "group", "remove", "operator", "client/bob") == 0
    capsys.readouterr()
    assert await command(access, "access", "group", "list", "--json") == 0
    groups = json.loads(capsys.readouterr().out)
    assert {each["name"]: each["members"] for each in groups} == {
        "operator": [],
        "ads": ["client/ann"],
    }


async def test_a_check_says_which_rule_decides(capsys: Output, access: ScriptedAccess) -> None:
    access.check = pb.CheckAccessResponse(allowed=True, rule="ads")
    assert await command(access, "access", "check", "me", "kill", "role:ads") == 0
    assert capsys.readouterr().out == "allowed: rule 'ads'\n"
    access.check = pb.CheckAccessResponse()
    assert await command(access, "access", "check", "client/b", "kill", "role:ads") == 3
    assert capsys.readouterr().out == "denied: no rule allows it\n"


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


@pytest.mark.parametrize(
    ("words", "restricted", "every"),
    [
        ("agents", "no agents that you may view are registered", "no agents are registered"),
        (
            "tasks --role ads",
            "no tasks that you may view pass these filters",
            "no tasks pass these filters",
        ),
        (
            "quota list",
            "no role that you may view has a guarantee, a limit or a preemption setting",
            "no role has a guarantee, a limit or a preemption setting",
        ),
    ],
)
async def test_an_empty_list_is_not_called_empty_to_a_restricted_caller(
    words: str, restricted: str, every: str, capsys: Output, access: ScriptedAccess
) -> None:
    assert await command(access, *words.split()) == 0
    assert capsys.readouterr().out == f"{restricted}\n"
    access.check = pb.CheckAccessResponse(allowed=True)
    assert await command(access, *words.split()) == 0
    assert capsys.readouterr().out == f"{every}\n"


async def test_top_tells_a_restricted_caller_that_it_is_one(
    capsys: Output, access: ScriptedAccess
) -> None:
    assert await command(access, "top", "--once") == 0
    _, totals, _, *sections = capsys.readouterr().out.splitlines()
    assert totals == "you may not view the totals of the cluster"
    assert sections[1::3] == [
        "no roles that you may view have frameworks or settings",
        "no frameworks that you may view are registered",
        "no agents that you may view have problems",
        "no task has failed recently in this term",
    ]
    access.check = pb.CheckAccessResponse(allowed=True)
    assert await command(access, "top", "--once") == 0
    _, totals, _, *sections = capsys.readouterr().out.splitlines()
    assert (totals, sections[7]) == ("no agents are connected", "no agent has problems")


async def test_a_run_of_a_restricted_caller_asks_why_it_waits(access: ScriptedAccess) -> None:
    access.operator.answers[operator_pb2.ExplainRequest] = operator_pb2.ExplainResponse(
        reasons=[operator_pb2.PassedOver(cause="does not fit", agents=3)]
    )
    target = Target((Address.parse(access.address),))
    missing = missing_credential(target)
    assert (await find_reason(target, "f1", missing)).text == "does not fit on 3 agents"
    access.check = pb.CheckAccessResponse(allowed=True)
    assert (await find_reason(target, "f1", missing)).text == "no agents are registered"
