"""The credentials of clients: what they read, verify and send, and what they refuse."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from croupier.model.errors import CroupierError, InvalidRequest, Unavailable
from croupier.net.address import Address
from croupier.net.credentials import ClientSecurity, create_token_file, make_token, read_token_file
from croupier.net.transport import bind, make_channel, make_server
from croupier.net.trust_domain import check_trust_domain, identity_uri, split_uri
from tests.harness.certificates import MASTER_NAME, Authority, PemFiles, authority

LOOPBACK = Address("127.0.0.1", 0)


@pytest.fixture
def client(tmp_path: Path) -> PemFiles:
    return authority().issue(tmp_path / "client", "client/alice")


@asynccontextmanager
async def echo_server() -> AsyncIterator[Address]:
    """Answer every call with the `authorization` that it carries."""

    async def unary(_: bytes, context: Any) -> bytes:
        return str(dict(context.invocation_metadata()).get("authorization", "")).encode()

    async def stream(_: Any, context: Any) -> AsyncIterator[bytes]:
        yield await unary(b"", context)

    handlers: Any = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Stream": grpc.stream_stream_rpc_method_handler(stream),
    }
    server = make_server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", handlers),))
    address = Address("127.0.0.1", bind(server, LOOPBACK))
    await server.start()
    try:
        yield address
    finally:
        await server.stop(None)


async def test_a_token_is_sent_with_streams_and_calls_over_loopback() -> None:
    security = ClientSecurity(token="crp_1_x")
    async with echo_server() as address, make_channel(address, security) as channel:
        call: Any = channel.unary_unary("/test/Unary")
        assert await call(b"") == b"Bearer crp_1_x"
        assert await call(b"", metadata=(("other", "1"),)) == b"Bearer crp_1_x"
        connect: Any = channel.stream_stream("/test/Stream")
        assert [answer async for answer in connect(iter([b""]))] == [b"Bearer crp_1_x"]


async def test_a_renewed_token_is_used_by_the_next_channel(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.touch(0o600)
    security = ClientSecurity(token_file=path)
    async with echo_server() as address:
        for token in ("old", "new"):
            path.write_text(f"{token}\nrest is ignored\n")
            async with make_channel(address, security) as channel:
                call: Any = channel.unary_unary("/test/Unary")
                assert await call(b"") == f"Bearer {token}".encode()


async def test_without_security_nothing_is_sent() -> None:
    async with echo_server() as address, make_channel(address, ClientSecurity()) as channel:
        call: Any = channel.unary_unary("/test/Unary")
        assert await call(b"") == b""


def test_a_token_does_not_cross_a_network_in_plain_text() -> None:
    security = ClientSecurity(token="crp_1_x")
    with pytest.raises(Unavailable, match=r"to 10\.0\.0\.1:5050 unencrypted; give --tls-ca"):
        make_channel(Address("10.0.0.1", 5050), security)


def test_the_master_has_the_name_of_its_cluster(client: PemFiles) -> None:
    assert ClientSecurity(ca=client.ca).target_name() == MASTER_NAME
    assert ClientSecurity(ca=client.ca, name="m.example").target_name() == "m.example"
    client.ca.write_bytes(Authority("").pem)
    assert ClientSecurity(ca=client.ca).target_name() == "", "the host's own name"


def test_an_old_and_a_new_authority_of_one_cluster_are_trusted(client: PemFiles) -> None:
    client.ca.write_bytes(authority().pem + Authority().pem)
    security = ClientSecurity(client.ca, client.cert, client.key)
    security.check()
    assert security.target_name() == MASTER_NAME


def test_authorities_of_two_clusters_need_a_name(client: PemFiles) -> None:
    client.ca.write_bytes(authority().pem + authority("other").pem)
    with pytest.raises(InvalidRequest, match=r"several clusters \(other, test\); give --tls-name"):
        ClientSecurity(ca=client.ca).check()


def refusal(**settings: Any) -> str:
    with pytest.raises(InvalidRequest) as refused:
        ClientSecurity(**settings).check()
    return str(refused.value)


def test_bad_files_are_named(client: PemFiles, tmp_path: Path) -> None:
    other = authority().issue(tmp_path / "other", "client/bob")
    missing, empty, pipe = tmp_path / "missing", tmp_path / "empty", tmp_path / "pipe"
    empty.touch()
    os.mkfifo(pipe)
    ca, cert, key = client.ca, client.cert, client.key
    assert refusal(ca=missing) == f"cannot read {missing}: No such file or directory"
    assert refusal(ca=tmp_path) == f"cannot read {tmp_path}: Is a directory"
    assert refusal(ca=pipe) == f"{pipe} is not a file"
    assert refusal(ca=empty) == f"{empty} is not a PEM file"
    assert refusal(ca=key) == f"{key} has no certificate of an authority"
    assert refusal(ca=cert) == f"{cert} has no certificate of an authority"
    assert refusal(ca=ca, cert=cert, key=other.key) == f"{other.key} is not the key of {cert}"
    assert "is not its unencrypted private key" in refusal(ca=ca, cert=cert, key=cert)
    assert "--tls-cert needs --tls-key" in refusal(ca=ca, cert=cert)
    assert "give --tls-ca" in refusal(cert=cert, key=key)
    assert "give --tls-ca" in refusal(name="m.example")


def test_bad_tokens_are_not_quoted(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_text("\n")
    assert refusal(token_file=path) == f"there is no token on the first line of {path}"
    for token in ("a b", "ä", "x" * 9000, "a\x00b"):
        text = refusal(token=token)
        assert "a token has at most" in text
        assert token not in text
    assert "hidden" not in repr(ClientSecurity(token="hidden"))


def test_names_of_clusters_and_identities() -> None:
    assert split_uri("croupier://prod/agent/A1") == ("prod", "agent/A1")
    assert split_uri("croupier://prod") == ("prod", "")
    assert identity_uri("prod", "agent/r1:é") == "croupier://prod/agent/r1%3A%C3%A9"
    assert split_uri("croupier://prod/agent/r1%3A%C3%A9") == ("prod", "agent/r1:é")
    for uri in ("https://prod/agent/A1", "croupier:///agent/A1", "croupier://PROD/x"):
        assert split_uri(uri) is None
    # A name has one spelling: what needs no encoding is not encoded, and nothing is decoded twice.
    for name in ("client/al%69ce", "client%2Falice", "client/%2e%2E", "client/%7ebob"):
        assert split_uri(f"croupier://prod/{name}") is None
    assert split_uri("croupier://prod/client/al%2569ce") == ("prod", "client/al%69ce")
    assert check_trust_domain("prod.eu-1") == "prod.eu-1"
    for text in ("", "a_b", "-a", "a" * 64, "a..b", "é"):
        with pytest.raises(CroupierError, match="is not the name of a cluster"):
            check_trust_domain(text)


# Token files are private, and errors do not show their contents.


def test_a_token_file_is_private_and_read_back(tmp_path: Path) -> None:
    token, path = make_token(), tmp_path / "token"
    create_token_file(path, token)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_token_file(path) == token


def test_tokens_differ() -> None:
    assert len({make_token().text for _ in range(100)}) == 100


def test_a_token_file_is_never_overwritten(tmp_path: Path) -> None:
    token, path = make_token(), tmp_path / "token"
    create_token_file(path, token)
    with pytest.raises(FileExistsError):
        create_token_file(path, make_token())
    assert read_token_file(path) == token


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_file_that_others_can_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "token"
    create_token_file(path, make_token())
    path.chmod(mode)
    with pytest.raises(InvalidRequest, match="chmod 600"):
        read_token_file(path)


def test_a_fifo_is_refused_without_waiting(tmp_path: Path) -> None:
    path = tmp_path / "token"
    os.mkfifo(path, 0o600)
    with pytest.raises(InvalidRequest, match="not a file"):
        read_token_file(path)


def test_errors_name_the_file_and_not_its_contents(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(InvalidRequest, match=str(path)):
        read_token_file(path)
    path.touch(0o600)
    path.write_text("hunter2")
    with pytest.raises(InvalidRequest, match=str(path)) as caught:
        read_token_file(path)
    assert "hunter2" not in str(caught.value)
