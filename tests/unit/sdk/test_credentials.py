"""Credentials of frameworks: given, or found; and a master that refuses them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from croupier.net.address import Address
from croupier.net.transport import bind, make_server
from croupier.sdk import Credentials, Framework, InvalidRequest, PermissionDenied, Unauthenticated
from croupier.sdk.credentials import CredentialSource

MASTERS = (Address("127.0.0.1", 5050),)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("TLS_CA", "TLS_CERT", "TLS_KEY", "TLS_NAME", "TOKEN", "TOKEN_FILE"):
        monkeypatch.delenv(f"CROUPIER_{name}", raising=False)


def test_without_any_the_framework_connects_in_plain_text() -> None:
    assert not CredentialSource(None, MASTERS).find().has_token


def test_they_are_found_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROUPIER_TOKEN", "hidden")
    assert CredentialSource(None, MASTERS).find().token == "hidden"
    assert not CredentialSource(Credentials(), MASTERS).find().has_token, (
        "given ones are not completed"
    )


def test_the_representation_has_no_token() -> None:
    assert "hidden" not in repr(Credentials(token="hidden"))


def test_unusable_ones_are_refused_at_once(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(InvalidRequest, match=missing):
        Framework(credentials=Credentials(token_file=missing))
    public = tmp_path / "public"
    public.write_text("hidden")
    public.chmod(0o644)
    with pytest.raises(InvalidRequest, match="chmod 600"):
        Framework(credentials=Credentials(token_file=str(public)))


@asynccontextmanager
async def refusing_master() -> AsyncIterator[tuple[Address, list[str]]]:
    """Refuse every stream; yield the address, and the tokens that were sent."""
    sent: list[str] = []

    async def connect(_: Any, context: Any) -> None:
        sent.append(dict(context.invocation_metadata()).get("authorization", ""))
        code = grpc.StatusCode.PERMISSION_DENIED if sent[0] else grpc.StatusCode.UNAUTHENTICATED
        await context.abort(code, "who are you?")

    handlers: Any = {"Connect": grpc.stream_stream_rpc_method_handler(connect)}
    server = make_server()
    name = "croupier.v1.FrameworkService"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
    address = Address("127.0.0.1", bind(server, Address("127.0.0.1", 0)))
    await server.start()
    try:
        yield address, sent
    finally:
        await server.stop(None)


async def test_a_refusal_ends_the_framework() -> None:
    async with refusing_master() as (address, sent):
        with pytest.raises(Unauthenticated, match="who are you"):
            await Framework(master=str(address)).run()
        # gRPC may cancel a call on a busy machine; the framework tries again then.
        assert set(sent) == {""}


async def test_the_token_is_sent() -> None:
    async with refusing_master() as (address, sent):
        framework = Framework(master=str(address), credentials=Credentials(token="t1"))
        with pytest.raises(PermissionDenied):
            await framework.run()
        assert set(sent) == {"Bearer t1"}
