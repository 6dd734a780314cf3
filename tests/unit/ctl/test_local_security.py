"""The secrets of a local cluster, and the credentials file of its user."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from croupier.ctl.local.security import LocalSecurity
from croupier.model.errors import Conflict, InvalidRequest
from croupier.net.address import Address
from croupier.net.credential_search import CredentialFlags, find_credentials
from croupier.net.credentials import read_token_file

MASTER = Address("127.0.0.1", 5050)


def make(tmp_path: Path, name: str = "work") -> LocalSecurity:
    (tmp_path / name).mkdir(exist_ok=True)
    made = LocalSecurity.make(tmp_path / name, MASTER, {"XDG_CONFIG_HOME": str(tmp_path)})
    made.write_files()
    return made


def test_the_users_programs_find_its_credentials(tmp_path: Path) -> None:
    made = make(tmp_path)
    path = made.publish()
    assert path == tmp_path / "croupier/credentials/127.0.0.1:5050.toml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = find_credentials(
        CredentialFlags(), (MASTER,), {"XDG_CONFIG_HOME": str(tmp_path)}
    ).security
    found.check()
    assert found.token == read_token_file(made.files.admin_token).text
    assert found.target_name() == "master.local.croupier"
    made.withdraw()
    assert not path.exists()


def test_agents_can_join_once_the_master_knows_the_token(tmp_path: Path) -> None:
    made = make(tmp_path)
    assert not made.files.join_token.exists()
    made.let_join()
    assert stat.S_IMODE(made.files.join_token.stat().st_mode) == 0o600
    assert read_token_file(made.files.join_token) == made.join_token
    with pytest.raises(InvalidRequest, match="File exists"):
        made.let_join()


def test_secrets_are_private_and_new_at_each_start(tmp_path: Path) -> None:
    files = make(tmp_path).files
    assert stat.S_IMODE(files.admin_token.parent.stat().st_mode) == 0o700
    for path in (files.key, files.admin_token):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = files.admin_token.read_text(), files.key.read_text(), files.ca.read_text()
    files = make(tmp_path).files
    after = files.admin_token.read_text(), files.key.read_text(), files.ca.read_text()
    assert not set(before) & set(after)
    assert not (files.ca.parent / "ca.key").exists(), "nothing else can be signed"


def test_the_file_of_a_dead_cluster_is_replaced(tmp_path: Path) -> None:
    dead, alive = make(tmp_path, "dead"), make(tmp_path, "alive")
    dead.publish()
    path = alive.publish()
    assert path is not None
    dead.withdraw()
    assert read_token_file(alive.files.admin_token).text in path.read_text()


def test_credentials_of_another_origin_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "croupier/credentials/127.0.0.1:5050.toml"
    path.parent.mkdir(parents=True)
    path.write_text('token = "of a tunnel"\n')
    with pytest.raises(Conflict, match="choose another --master-port"):
        make(tmp_path)
    assert "of a tunnel" in path.read_text()


def test_a_home_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "croupier").write_text("not a directory")
    assert make(tmp_path).publish() is None


def test_a_planted_link_is_refused_and_not_followed(tmp_path: Path) -> None:
    target, work = tmp_path / "target", tmp_path / "work"
    target.mkdir(mode=0o755)
    (target / "kept.key").write_text("kept")
    work.mkdir()
    (work / "local-secrets").symlink_to(target)
    with pytest.raises(InvalidRequest, match="is a link"):
        make(tmp_path)
    assert (target / "kept.key").read_text() == "kept"
    assert stat.S_IMODE(target.stat().st_mode) == 0o755
