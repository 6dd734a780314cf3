"""A daemon's certificate: taken when its files change, kept when they cannot be used."""

from __future__ import annotations

import shutil
import ssl
import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from croupier.model.errors import InvalidRequest
from croupier.net.certificate import read_certificates
from croupier.net.server_tls import ServerTls, TlsFiles
from croupier.process.metric_families import FamilyCollector
from croupier.process.tls.renewal import RENEWALS, TLS, RenewedTls
from tests.harness.certificates import HOUR, PemFiles, authority


class SetClock:
    """A clock whose wall time is `offset_s` from the true one."""

    offset_s = 0.0

    def now(self) -> float:
        return time.monotonic() + self.offset_s

    def wall_ms(self) -> int:
        return int((time.time() + self.offset_s) * 1000)


@pytest.fixture
def own(tmp_path: Path) -> PemFiles:
    return authority().issue(tmp_path / "own", "agent/a1")


def renewed(own: PemFiles, clock: SetClock | None = None) -> RenewedTls:
    return RenewedTls(TlsFiles(own.cert, own.key, own.ca), clock or SetClock())


def renew(own: PemFiles, **more: object) -> None:
    authority().issue(own.cert.parent, "agent/a1", **more)  # type: ignore[arg-type]


async def test_unchanged_files_are_not_read_again(own: PemFiles) -> None:
    tls = renewed(own)
    before = tls.current
    await tls.look()
    assert tls.current is before
    assert tls.latest() is before


async def test_changed_files_are_taken(own: PemFiles) -> None:
    tls = renewed(own)
    before = tls.current
    renew(own)
    with capture_logs() as logs:
        await tls.look()
    assert tls.current is not before
    assert (tls.renewals, tls.failures) == (1, 0)
    assert [line["event"] for line in logs] == ["certificate_renewed"]


async def test_a_renewal_by_a_link_is_noticed(own: PemFiles, tmp_path: Path) -> None:
    """Kubernetes replaces the directory that a link leads to."""
    link = tmp_path / "link"
    link.symlink_to(own.cert.parent)
    tls = RenewedTls(TlsFiles(link / "cert.pem", link / "key.pem"), SetClock())
    authority().issue(tmp_path / "next", "agent/a2")
    (tmp_path / "scratch").symlink_to(tmp_path / "next")
    (tmp_path / "scratch").replace(link)
    await tls.look()
    assert tls.current.certificate.identity == "agent/a2"


async def test_files_that_cannot_be_used_change_nothing_and_are_logged_once(
    own: PemFiles, tmp_path: Path
) -> None:
    tls = renewed(own)
    before, cert = tls.current, own.cert.read_bytes()
    other = authority().issue(tmp_path / "other", "agent/a1")
    broken = [b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
    for text in [*broken, other.cert.read_bytes()]:
        own.cert.write_bytes(text)
        with capture_logs() as logs:
            await tls.look()
            await tls.look()
        assert [line["event"] for line in logs] == ["certificate_not_renewed"]
        assert str(own.cert) in logs[0]["error"]
    own.cert.unlink()
    await tls.look()
    assert tls.failures == 4
    assert tls.current is before
    own.cert.write_bytes(cert)
    await tls.look()
    assert tls.renewals == 1


async def test_files_that_vanish_while_they_are_read_change_nothing(
    own: PemFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanished(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    tls = renewed(own)
    renew(own)
    with monkeypatch.context() as patched:
        patched.setattr(ssl.SSLContext, "load_cert_chain", vanished)
        await tls.look()
        assert (tls.renewals, tls.failures) == (0, 1)
    await tls.look()
    assert (tls.renewals, tls.failures) == (1, 1)


async def test_a_certificate_of_the_future_is_taken_once_it_is_valid(own: PemFiles) -> None:
    clock = SetClock()
    tls = renewed(own, clock)
    renew(own, valid=(HOUR, 3 * HOUR))
    await tls.look()
    assert (tls.renewals, tls.failures) == (0, 1)
    clock.offset_s = 4000
    with capture_logs() as logs:
        await tls.look()
    assert (tls.renewals, tls.failures) == (1, 1)
    assert [line["event"] for line in logs] == ["certificate_renewed"]


async def test_expiry_is_logged_once(own: PemFiles) -> None:
    clock = SetClock()
    tls = renewed(own, clock)
    clock.offset_s = 4000
    with capture_logs() as logs:
        await tls.look()
        await tls.look()
    assert [line["event"] for line in logs] == ["certificate_expired"]


def test_every_bad_file_is_named_at_the_start(own: PemFiles, tmp_path: Path) -> None:
    def refusal(files: TlsFiles) -> str:
        with pytest.raises(InvalidRequest) as refused:
            ServerTls.load(files, time.time())
        assert "\n" not in str(refused.value)
        return str(refused.value)

    other = authority().issue(tmp_path / "other", "agent/a1")
    late = authority().issue(tmp_path / "late", "agent/a1", valid=(-2 * HOUR, -HOUR))
    early = authority().issue(tmp_path / "early", "agent/a1", valid=(HOUR, 2 * HOUR))
    missing = tmp_path / "missing"
    cert, key, ca = own.cert, own.key, own.ca
    assert refusal(TlsFiles(missing, key)) == f"cannot read {missing}: No such file or directory"
    assert refusal(TlsFiles(cert, missing)) == f"cannot read {missing}: No such file or directory"
    assert refusal(TlsFiles(cert, other.key)) == f"{other.key} is not the key of {cert}"
    assert "is not a certificate, or" in refusal(TlsFiles(key, key))
    assert refusal(TlsFiles(cert, key, key)) == f"{key} has no certificate, or a malformed one"
    assert f"{late.cert} expired on" in refusal(TlsFiles(late.cert, late.key))
    assert f"{early.cert} is not valid before" in refusal(TlsFiles(early.cert, early.key, ca))


def test_names_of_a_certificate(own: PemFiles) -> None:
    (certificate,) = read_certificates(own.cert)
    assert (certificate.trust_domain, certificate.identity) == ("test", "agent/a1")
    (signer,) = read_certificates(own.ca)
    assert (signer.trust_domain, signer.identity) == ("test", "")
    assert signer.subject == certificate.issuer


async def test_expiry_and_renewals_are_metrics(own: PemFiles, tmp_path: Path) -> None:
    tls = renewed(own)
    registry = CollectorRegistry()
    registry.register(FamilyCollector(TLS, lambda: tls))
    registry.register(FamilyCollector(RENEWALS, lambda: {"own": tls}))

    def sample(name: str, **labels: str) -> float:
        value = registry.get_sample_value(f"croupier_certificate_{name}", labels)
        assert value is not None
        return value

    def left_s() -> float:
        return sample("expiry_time_seconds", certificate="own") - time.time()

    assert 3500 < left_s() <= 3600
    assert sample("expiry_time_seconds", certificate="authority") > time.time()
    assert sample("start_time_seconds") < time.time()
    renew(own, valid=(-HOUR, 3 * HOUR))
    await tls.look()
    assert left_s() > 7200
    shutil.rmtree(own.cert.parent)
    await tls.look()
    assert sample("renewals_total", certificate="own", outcome="renewed") == 1
    assert sample("renewals_total", certificate="own", outcome="failed") == 1
    assert sample("refused", certificate="own") == 1
