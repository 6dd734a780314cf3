"""Certificates and passwords of etcd: accepted if right, and reported once if wrong."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from croupier.master.core.records import MasterRecord
from croupier.master.etcd.client import EtcdClient
from croupier.master.etcd.election import EtcdElection
from croupier.master.etcd.target import EtcdAccess, EtcdFlags
from croupier.master.etcd.upkeep import EtcdRenewal
from croupier.master.store.etcd import EtcdStore
from croupier.model.errors import InvalidRequest
from tests.harness.etcd import PASSWORD, USER, Etcd, make_certificates, running_etcd
from tests.integration.etcd.conftest import Masters


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    directory = tmp_path_factory.mktemp("tls")
    certificates = make_certificates(directory / "certificates")
    with running_etcd(directory, certificates=certificates) as etcd:
        yield etcd


@pytest.fixture(scope="module")
def with_users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with running_etcd(tmp_path_factory.mktemp("users")) as etcd:
        etcd.enable_users("croupier")
        yield etcd


async def use(etcd: Etcd, access: EtcdAccess, prefix: str = "croupier") -> None:
    """Lead, commit and load with `access`."""
    async with AsyncExitStack() as stack:
        client = EtcdClient(etcd.addresses, access)
        stack.push_async_callback(client.close)
        election = EtcdElection(client, prefix, "a:1", 5)
        stack.push_async_callback(election.close)
        await election.win()
        store = EtcdStore(client, prefix, election)
        await store.load()
        await store.commit([MasterRecord("c", 1)])
        # An expired token is renewed.
        if client._token:
            client._token = "nonsense"
        assert (await store.load()).master == MasterRecord("c", 1)
        assert election.is_won


async def refusal(etcd: Etcd, access: EtcdAccess, prefix: str = "croupier") -> str:
    with pytest.raises(InvalidRequest) as refused:
        await use(etcd, access, prefix)
    assert "\n" not in str(refused.value)
    return str(refused.value)


async def test_a_client_with_a_certificate_is_accepted(guarded: Etcd) -> None:
    await use(guarded, guarded.access())


async def test_a_wrong_authority_is_reported(guarded: Etcd, tmp_path: Path) -> None:
    others = make_certificates(tmp_path)
    access = dataclasses.replace(guarded.access(), ca=others.ca.read_bytes())
    assert "CERTIFICATE_VERIFY_FAILED" in await refusal(guarded, access)


async def test_a_client_without_a_certificate_is_refused(guarded: Etcd) -> None:
    access = EtcdAccess(ca=guarded.access().ca)
    assert "are ca, certificate and key the right files?" in await refusal(guarded, access)


async def test_a_key_of_another_certificate_is_refused(guarded: Etcd, tmp_path: Path) -> None:
    others = make_certificates(tmp_path)
    access = dataclasses.replace(guarded.access(), key=others.client_key.read_bytes())
    assert "are ca, certificate and key the right files?" in await refusal(guarded, access)


async def test_renewed_credentials_are_used_within_a_term(guarded: Etcd, tmp_path: Path) -> None:
    assert guarded.certificates is not None
    own = guarded.certificates
    ca, cert, key = (tmp_path / name for name in ("ca", "cert", "key"))
    for path, source in ((ca, own.ca), (cert, own.client), (key, own.client_key)):
        path.write_bytes(source.read_bytes())
    files = EtcdFlags(etcd_ca=ca, etcd_cert=cert, etcd_key=key)
    async with AsyncExitStack() as stack:
        client = EtcdClient(guarded.addresses, files.read())
        stack.push_async_callback(client.close)
        election = EtcdElection(client, "renewed", "a:1", 5)
        stack.push_async_callback(election.close)
        await election.win()
        renewal = EtcdRenewal(client, files)
        assert await renewal.look()
        before = client._endpoints
        # A certificate without its key, then of a foreign authority, then a good one.
        foreign = make_certificates(tmp_path / "foreign")
        cert.write_bytes(foreign.client.read_bytes())
        with capture_logs() as logs:
            assert not await renewal.look()
            key.write_bytes(foreign.client_key.read_bytes())
            assert not await renewal.look()
            assert not await renewal.look()
            assert client._endpoints is before
            await client.get(b"x")
            cert.write_bytes(own.server.read_bytes())
            key.write_bytes(own.server_key.read_bytes())
            assert await renewal.look()
        assert [line["event"] for line in logs] == [
            "etcd_credentials_not_renewed",
            "etcd_credentials_not_renewed",
            "etcd_credentials_renewed",
        ]
        assert client._endpoints is not before
        assert (client.certificate_expires_at or 0) > time.time()
        await client.get(b"x")
        assert election.is_won


async def test_a_client_with_a_password_is_accepted(with_users: Etcd) -> None:
    await use(with_users, with_users.access(USER, PASSWORD))


async def test_a_wrong_password_is_reported(with_users: Etcd) -> None:
    text = await refusal(with_users, with_users.access(USER, "wrong"))
    assert "authentication failed" in text
    assert repr(USER) in text
    assert "wrong" not in text


async def test_a_missing_user_is_refused(with_users: Etcd) -> None:
    assert "it wants a user" in await refusal(with_users, with_users.access())


async def test_a_user_without_permission_is_refused(with_users: Etcd) -> None:
    text = await refusal(with_users, with_users.access(USER, PASSWORD), prefix="elsewhere")
    assert "must be granted" in text


async def test_a_user_of_an_etcd_without_users_is_refused(masters: Masters) -> None:
    assert "not enabled" in await refusal(masters.etcd, masters.etcd.access(USER, PASSWORD))


async def test_an_unsound_release_is_logged(
    masters: Masters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("croupier.master.etcd.client.SOUND", {(3, 4): 99, (3, 5): 6})
    with capture_logs() as logs:
        await masters.client().check()
    assert [entry["event"] for entry in logs] == ["etcd_release_unsound"]
