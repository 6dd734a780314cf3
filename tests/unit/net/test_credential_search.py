"""Where clients find their credentials."""

from __future__ import annotations

from pathlib import Path

import pytest

from croupier.model.errors import InvalidRequest
from croupier.net.address import Address
from croupier.net.credential_search import (
    CredentialFlags,
    FoundCredentials,
    credentials_file,
    find_credentials,
)
from croupier.net.credentials import make_token

MASTERS = (Address("127.0.0.1", 5050), Address("m2", 5050))
NO_FLAGS = CredentialFlags()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".config/croupier/credentials").mkdir(parents=True)
    return tmp_path


def write(home: Path, text: str, mode: int = 0o600) -> Path:
    path = home / ".config/croupier/credentials/127.0.0.1:5050.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


def find(home: Path, flags: CredentialFlags = NO_FLAGS, **variables: str) -> FoundCredentials:
    return find_credentials(flags, MASTERS, {"HOME": str(home), **variables})


def test_without_any_credential_there_is_none(home: Path) -> None:
    found = find(home)
    assert not found.sources
    assert not found.security.is_encrypted
    assert not found.security.has_token
    assert found.text == "no credential"
    assert find_credentials(NO_FLAGS, MASTERS, {}).file is None


def test_the_file_of_the_first_master_is_read(home: Path) -> None:
    token = make_token()
    path = write(home, f'ca = "ca.crt"\nname = "m"\ntoken = "{token.text}"\n')
    found = find(home)
    assert found.file == path
    assert found.security.ca == path.parent / "ca.crt"
    assert found.security.name == "m"
    assert found.security.token == token.text
    assert found.text == f"the token {token.token_id} in {path}"
    assert token.secret not in repr(found)


def test_the_order_of_the_masters_does_not_matter(home: Path) -> None:
    path = write(home, 'name = "m"\n')
    first, second = MASTERS
    assert find_credentials(NO_FLAGS, (second, first), {"HOME": str(home)}).file == path
    other = path.with_name(f"{second}.toml")
    assert find_credentials(NO_FLAGS, (second,), {"HOME": str(home)}).file == other
    other.write_text('name = "other"\n')
    other.chmod(0o600)
    found = find_credentials(NO_FLAGS, (second, first), {"HOME": str(home)})
    assert found.security.name == "other", "the first that has one"


def test_localhost_has_the_file_of_its_address() -> None:
    names = {
        credentials_file(Address(host, 5050), {"XDG_CONFIG_HOME": "/c"})
        for host in ("localhost", "127.0.0.1")
    }
    assert names == {Path("/c/croupier/credentials/127.0.0.1:5050.toml")}


def test_flags_override_the_environment_which_overrides_the_file(home: Path) -> None:
    write(home, 'ca = "/file/ca"\nname = "file"\n')
    assert find(home, CROUPIER_TLS_CA="/env/ca").security.ca == Path("/env/ca")
    found = find(home, CredentialFlags(ca=Path("/flag/ca")), CROUPIER_TLS_CA="/env/ca")
    assert found.security.ca == Path("/flag/ca")
    assert found.security.name == "file"
    assert found.sources["ca"] == "--tls-ca"


def test_the_identity_is_of_one_source(home: Path) -> None:
    write(home, f'ca = "/file/ca"\ntoken = "{make_token().text}"\n')
    flags = CredentialFlags(cert=Path("bob.crt"), key=Path("bob.key"))
    found = find(home, flags, CROUPIER_TOKEN="other")
    assert not found.security.has_token, "bob's certificate, and not another's token"
    assert found.security.ca == Path("/file/ca")
    assert found.text == "the certificate bob.crt (--tls-cert)"
    found = find(home, CROUPIER_TOKEN_FILE="/t")
    assert (found.security.token, found.security.token_file) == ("", Path("/t"))
    assert found.text == "the token in /t (CROUPIER_TOKEN_FILE)"


def test_two_tokens_of_one_source_are_refused(home: Path) -> None:
    with pytest.raises(InvalidRequest, match="CROUPIER_TOKEN and CROUPIER_TOKEN_FILE") as caught:
        find(home, CROUPIER_TOKEN="hidden", CROUPIER_TOKEN_FILE="/t")
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_file_that_others_can_read_or_write_is_refused(home: Path, mode: int) -> None:
    path = write(home, 'token = "hidden"\n', mode)
    with pytest.raises(InvalidRequest, match="chmod 600") as caught:
        find(home)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [("hidden", "not a TOML file"), ('tokn = "hidden"', "unknown key 'tokn'"),
     ("token = 1", "token is not a text"), ('ca = ""', "ca is not a text")],
)  # fmt: skip
def test_a_malformed_file_is_named_and_not_quoted(home: Path, text: str, problem: str) -> None:
    path = write(home, text)
    with pytest.raises(InvalidRequest, match=problem) as caught:
        find(home)
    assert str(path) in str(caught.value)
    assert "hidden" not in str(caught.value)
