"""A command that waits without a credential says so once."""

from __future__ import annotations

from pathlib import Path

import pytest

from croupier.cli.connection import missing_credential
from croupier.cli.flags import Target


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
