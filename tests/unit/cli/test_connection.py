"""Calls to a master that are cancelled, that it does not know, or that lack a credential."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from croupier.cli import connection
from croupier.cli.connection import Master, connected, missing_credential, with_advice
from croupier.cli.flags import Target
from croupier.model.errors import PermissionDenied, Unauthenticated, Unavailable
from croupier.net.address import Address
from croupier.net.credential_search import FoundCredentials
from croupier.net.credentials import ClientSecurity, make_token
from croupier.net.transport import make_channel
from croupier.v1 import operator_pb2 as pb
from tests.harness.operators import ScriptedOperator, serving

ADDRESS = Address("127.0.0.1", 1)


async def ends_by_status(request: object, timeout: float) -> Any:
    """End with a gRPC status when the task is cancelled."""
    try:
        await asyncio.sleep(timeout)
    except asyncio.CancelledError:
        nothing = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(grpc.StatusCode.CANCELLED, nothing, nothing) from None


async def test_a_cancelled_call_ends_its_task() -> None:
    async with make_channel(ADDRESS) as channel:
        master = Master(ADDRESS, channel)

        async def insist() -> None:
            for _ in range(2):
                try:
                    await master.ask(ends_by_status, object(), 0.5)  # type: ignore[arg-type]
                except Unavailable:
                    continue

        insisting = asyncio.create_task(insist())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        insisting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(insisting, 5.0)


async def is_unknown(request: object, timeout: float) -> Any:
    """Fail as an unknown method does."""
    nothing = grpc.aio.Metadata()
    raise grpc.aio.AioRpcError(grpc.StatusCode.UNIMPLEMENTED, nothing, nothing)


async def test_an_unknown_method_means_an_older_master() -> None:
    async with make_channel(ADDRESS) as channel:
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1 is of an older release"):
            await Master(ADDRESS, channel).ask(is_unknown, object())  # type: ignore[arg-type]


def test_a_refusal_names_the_credential_and_the_next_command_once() -> None:
    found = FoundCredentials(ClientSecurity(token="hidden"), {"token": "CROUPIER_TOKEN"})
    denied = with_advice(PermissionDenied("may not kill"), found)
    assert isinstance(denied, PermissionDenied)
    assert str(denied).startswith("may not kill; you used the token in CROUPIER_TOKEN: ")
    assert "croupier access whoami" in str(denied)
    assert with_advice(denied, found) is denied
    assert "croupier doctor" in str(with_advice(Unauthenticated("who?"), found))
    nothing = FoundCredentials(ClientSecurity())
    assert "give --token-file or --tls-cert" in str(with_advice(Unauthenticated("who?"), nothing))


async def test_only_a_caller_with_a_token_is_told_to_list_the_token_ports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "FIND_S", 0.5)
    async with serving(ScriptedOperator()) as follower:
        follower.answers[pb.GetMasterRequest] = pb.GetMasterResponse()
        for token, text in (("", "no master leads right now"), (make_token().text, "token ports")):
            monkeypatch.setenv("CROUPIER_TOKEN", token)
            with pytest.raises(Unavailable, match=text):
                async with connected(Target.parse(follower.address)):
                    pass


# A command that waits without a credential says so once.


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of the credentials of a user that has none."""
    for variable in ("CROUPIER_TOKEN", "CROUPIER_TOKEN_FILE", "CROUPIER_TLS_CERT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "croupier" / "credentials"


def test_it_is_said_once_with_the_next_step(home: Path) -> None:
    missing = missing_credential(Target.parse("m1:5050"))
    assert missing.advice() == (
        "; no credential was found: if the cluster requires one, start again with --token-file or"
        f" --tls-cert, or write {home}/m1:5050.toml, which is looked for again"
    )
    assert not missing.advice()


def test_a_command_with_a_credential_says_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CROUPIER_TOKEN", "crp_x_y")
    assert not missing_credential(Target.parse("m1:5050")).advice()
    monkeypatch.delenv("CROUPIER_TOKEN")
    assert not missing_credential(Target(token_file=home / "token")).advice()
