"""Certificates of a private authority, as TLS libraries see them."""

from __future__ import annotations

import json
import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from croupier.ctl.__main__ import main
from croupier.ctl.certificates.certificate import Leaf
from croupier.ctl.certificates.directory import (
    AuthorityDirectory,
    CertificateFiles,
    certificate_views,
)
from croupier.model.errors import Conflict, InvalidRequest
from croupier.net.credentials import ClientSecurity

NOW = datetime.now(UTC)
MASTER = Leaf("master", "m1", ("127.0.0.1", "m1.example"))


@pytest.fixture
def authority(tmp_path: Path) -> AuthorityDirectory:
    made = AuthorityDirectory(tmp_path / "ca")
    made.init("prod", 100, NOW, force=False)
    return made


def shake_hands(
    server: CertificateFiles, client: CertificateFiles, ca: Path, server_name: str
) -> None:
    """Make a TLS connection in memory, with certificates on both sides; raise if it fails."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(server.cert, server.key)
    serving.load_verify_locations(ca)
    serving.verify_mode = ssl.CERT_REQUIRED
    calling = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    calling.load_cert_chain(client.cert, client.key)
    calling.load_verify_locations(ca)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        calling.wrap_bio(down, up, server_hostname=server_name),
        serving.wrap_bio(up, down, server_side=True),
    )
    is_done = [False, False]
    for _ in range(10):
        for number, end in enumerate(ends):
            try:
                end.do_handshake()
                is_done[number] = True
            except ssl.SSLWantReadError:
                pass
    assert all(is_done)


def test_a_master_and_a_client_verify_each_other(authority: AuthorityDirectory) -> None:
    master = authority.issue(MASTER, 30, NOW, force=False)
    alice = authority.issue(Leaf("client", "alice"), 30, NOW, force=False)
    for name in ("master.prod.croupier", "m1.example", "127.0.0.1"):
        shake_hands(master, alice, authority.ca, name)
    security = ClientSecurity(authority.ca, alice.cert, alice.key)
    security.check()
    assert security.target_name() == "master.prod.croupier"


@pytest.mark.parametrize(
    "leaf",
    [Leaf("client", "master.prod.croupier"), Leaf("agent", "master.prod.croupier", ("h1",)),
     Leaf("etcd", "e1", ("h1",))],
)  # fmt: skip
def test_no_other_certificate_passes_for_a_masters(
    authority: AuthorityDirectory, leaf: Leaf
) -> None:
    other = authority.issue(leaf, 30, NOW, force=False)
    with pytest.raises(ssl.SSLError):
        shake_hands(other, other, authority.ca, "master.prod.croupier")


def test_the_name_of_a_certificate_is_its_principal(authority: AuthorityDirectory) -> None:
    def names(leaf: Leaf) -> list[str]:
        made = authority.issue(leaf, 30, NOW, force=False)
        uris: list[str] = certificate_views(made.cert, NOW)[0]["uris"]
        return uris

    assert names(MASTER) == ["croupier://prod/master/m1"]
    assert names(Leaf("agent", "rack:é")) == ["croupier://prod/agent/rack%3A%C3%A9"]
    assert names(Leaf("client", "alice")) == ["croupier://prod/client/alice"]
    assert names(Leaf("etcd", "e1")) == []


def test_keys_are_private_and_kept(authority: AuthorityDirectory) -> None:
    master = authority.issue(MASTER, 30, NOW, force=False)
    for key in (authority.key, master.key):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    before = master.key.read_bytes(), authority.key.read_bytes()
    with pytest.raises(Conflict, match="croupier cert renew"):
        authority.issue(MASTER, 30, NOW, force=False)
    with pytest.raises(Conflict, match="croupier cert rotate"):
        authority.init("prod", 30, NOW, force=False)
    assert (master.key.read_bytes(), authority.key.read_bytes()) == before
    authority.issue(MASTER, 30, NOW, force=True)
    assert master.key.read_bytes() != before[0]


def test_a_renewed_certificate_has_the_same_names_and_key(authority: AuthorityDirectory) -> None:
    old = authority.issue(MASTER, 1, NOW, force=False)
    key = old.key.read_bytes()
    (before,) = certificate_views(old.cert, NOW)
    authority.renew(old.cert, 90, NOW)
    (after,) = certificate_views(old.cert, NOW)
    assert old.key.read_bytes() == key
    assert after["days_left"] == pytest.approx(90, abs=0.1)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"valid_until", "days_left", "sha256"}


def test_a_rotation_breaks_no_connection(authority: AuthorityDirectory) -> None:
    master = authority.issue(MASTER, 30, NOW, force=False)
    alice = authority.issue(Leaf("client", "alice"), 30, NOW, force=False)
    authority.rotate(100, NOW)
    shake_hands(master, alice, authority.ca, "master.prod.croupier")
    authority.renew(master.cert, 30, NOW)
    shake_hands(master, alice, authority.ca, "master.prod.croupier")
    with pytest.raises(Conflict, match="alice"):
        authority.finish_rotation()
    with pytest.raises(Conflict, match="finish that rotation"):
        authority.rotate(100, NOW)
    authority.renew(alice.cert, 30, NOW)
    authority.finish_rotation()
    shake_hands(master, alice, authority.ca, "master.prod.croupier")
    assert len(authority.authorities()) == 1
    assert not authority.old_key.exists()
    with pytest.raises(Conflict, match="nothing to finish"):
        authority.finish_rotation()


def test_validity(authority: AuthorityDirectory) -> None:
    made = authority.issue(MASTER, 30, NOW, force=False)

    def state(after: timedelta) -> str:
        return str(certificate_views(made.cert, NOW + after)[0]["state"])

    assert state(timedelta()) == "valid"
    assert state(timedelta(days=31)) == "expired"
    assert state(-timedelta(minutes=50)) == "valid", "another clock may be behind"
    assert state(-timedelta(hours=2)) == "not valid yet"


@pytest.mark.parametrize(
    ("leaf", "days"),
    [(Leaf("master", "../x", ()), 30), (Leaf("master", "m2", ("a b",)), 30), (MASTER, 0)],
)
def test_malformed_arguments_are_refused(
    authority: AuthorityDirectory, leaf: Leaf, days: int
) -> None:
    with pytest.raises(InvalidRequest):
        authority.issue(leaf, days, NOW, force=False)


def test_commands_print_the_next_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["cert", "master", "m1", "--address", "h1", "--dir", "ca"]) == 2
    assert "croupier cert init" in capsys.readouterr().err
    assert main(["cert", "init", "ca", "--cluster", "Prod!"]) == 2
    assert main(["cert", "init", "ca", "--cluster", "prod"]) == 0
    assert "croupier cert master m1" in capsys.readouterr().out
    assert main(["cert", "master", "m1", "--address", "h1,10.0.0.1", "--dir", "ca"]) == 0
    assert "croupier-master --listen h1:5050" in capsys.readouterr().out
    assert main(["cert", "master", "m1", "--address", "h1", "--dir", "ca"]) == 1
    capsys.readouterr()
    assert main(["cert", "show", "ca", "--json"]) == 0
    views = json.loads(capsys.readouterr().out)
    assert [view["uris"] for view in views] == [["croupier://prod"], ["croupier://prod/master/m1"]]
    assert main(["cert", "show", "ca/ca.key"]) == 2


@pytest.mark.parametrize(
    "host", ["master.prod.croupier", "MASTER.prod.croupier.", "*.prod.croupier", "*.croupier", "*"]
)
def test_no_agent_gets_a_name_of_masters(authority: AuthorityDirectory, host: str) -> None:
    with pytest.raises(InvalidRequest, match="tell masters from others"):
        authority.issue(Leaf("agent", "a1", (host,)), 30, NOW, force=False)
    authority.issue(Leaf("agent", "a1", ("croupier", "*.example.com")), 30, NOW, force=False)


def test_the_steps_of_a_rotation_restart_etcd_before_certificates_are_renewed(
    authority: AuthorityDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cert", "rotate", str(authority.path)]) == 0
    steps = capsys.readouterr().out
    words = ("Copy", "Restart the members of etcd one by one", "croupier cert renew", "--finish")
    places = [steps.index(each) for each in words]
    assert places == sorted(places)
    assert main(["cert", "renew", str(authority.path)]) == 0
    capsys.readouterr()
    assert main(["cert", "rotate", "--finish", str(authority.path)]) == 0
    assert "restart the members of etcd one by one" in capsys.readouterr().out
