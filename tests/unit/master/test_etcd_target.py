"""Targets, credentials and releases of etcd."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from croupier.master.etcd import operations as op
from croupier.master.etcd.client import is_sound
from croupier.master.etcd.target import EtcdAccess, EtcdFlags, EtcdTarget
from croupier.model.errors import InvalidRequest
from croupier.net.address import Address


def test_a_target_is_parsed() -> None:
    target = EtcdTarget.parse("etcd://h1,h2:1234,[::1]:99/teams/x")
    assert target.endpoints == (Address("h1", 2379), Address("h2", 1234), Address("::1", 99))
    assert target.prefix == "teams/x"
    assert EtcdTarget.parse(str(target)) == target


def test_the_prefix_has_a_default() -> None:
    assert EtcdTarget.parse("etcd://h1").prefix == "croupier"
    assert EtcdTarget.parse("etcd://h1/").prefix == "croupier"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "h1:2379",
        "http://h1/x",
        "etcd://",
        "etcd:///x",
        "etcd://h1:x/p",
        "etcd://h1/a//b",
        "etcd://h1/..",
        "etcd://h1/a b",
        "etcd://h1/a/records",
        "etcd://h1/head",
    ],
)
def test_an_invalid_target_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        EtcdTarget.parse(text)


def test_credentials_are_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("-----BEGIN CERTIFICATE-----\n")
    (tmp_path / "word").write_text("a secret \n")
    access = EtcdFlags(
        etcd_ca=tmp_path / "ca", etcd_user="u", etcd_password_file=tmp_path / "word"
    ).read()
    assert access.is_encrypted
    assert access.password == "a secret "
    assert not EtcdFlags().read().is_encrypted


def test_incomplete_credentials_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no PEM")
    file = tmp_path / "file"
    wrongs: dict[str, list[Callable[[], EtcdAccess]]] = {
        "needs its key": [
            lambda: EtcdFlags(etcd_cert=file).read(),
            lambda: EtcdFlags(etcd_key=file).read(),
        ],
        "needs a password file": [
            lambda: EtcdFlags(etcd_user="u").read(),
            lambda: EtcdFlags(etcd_password_file=file).read(),
        ],
        "not a PEM file": [lambda: EtcdFlags(etcd_ca=file).read()],
        "No such file": [lambda: EtcdFlags(etcd_ca=tmp_path / "none").read()],
    }
    for says, reads in wrongs.items():
        for read in reads:
            with pytest.raises(InvalidRequest, match=says):
                read()


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(EtcdAccess(user="u", password="secret", key=b"secret"))


@pytest.mark.parametrize(
    ("version", "sound"),
    [
        ("3.4.22", True),
        ("3.4.21", False),
        ("3.5.5", False),
        ("3.5.6", True),
        ("3.5.1", False),
        ("3.6.0", True),
        ("4.0.0", True),
        ("3.3.99", False),
        ("", False),
        ("what", False),
    ],
)
def test_releases_with_known_bugs_are_unsound(version: str, sound: bool) -> None:
    assert is_sound(version) is sound


def test_the_key_of_a_record_holds_its_kind_and_id() -> None:
    keys = op.Keys("teams/x")
    key = keys.record("task", "F/a%2Fb")
    assert keys.record_of(key) == ("task", "F/a%2Fb")
    assert keys.records <= key < op.end_of(keys.records)


def test_the_key_of_a_running_master_cannot_be_one_of_another_cluster() -> None:
    keys = op.Keys("teams")
    assert keys.master_of(keys.master("m1:5050")) == "m1:5050"
    assert keys.masters <= keys.master("[::1]:5050") < op.end_of(keys.masters)
    name = keys.masters.decode().strip("/")
    with pytest.raises(InvalidRequest):
        EtcdTarget.parse(f"etcd://e1/{name}")
