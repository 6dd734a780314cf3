"""Where a client finds its credentials: flags, then the environment, then a file for its master.

Rule: what proves the caller's identity, a certificate or a token, is taken from one source, the
first that has any. The authorities and the master's name are looked up each by itself.

The file is `~/.config/croupier/credentials/HOST:PORT.toml` of the first master in the list that
has one: all are of one cluster, so their order must not matter. Its keys are `ca`, `cert`, `key`,
`name` and `token`; relative paths begin at its directory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from croupier.model.errors import InvalidRequest
from croupier.model.token import BearerToken
from croupier.net.address import Address
from croupier.net.credentials import ClientSecurity, read_file

NO_CREDENTIAL: Final = "no credential"
_KEYS: Final = ("ca", "cert", "key", "name", "token")
_VARIABLES: Final = {
    "ca": "CROUPIER_TLS_CA",
    "cert": "CROUPIER_TLS_CERT",
    "key": "CROUPIER_TLS_KEY",
    "name": "CROUPIER_TLS_NAME",
    "token_file": "CROUPIER_TOKEN_FILE",
    "token": "CROUPIER_TOKEN",
}
_FLAGS: Final = {
    "ca": "--tls-ca",
    "cert": "--tls-cert",
    "key": "--tls-key",
    "name": "--tls-name",
    "token_file": "--token-file",
}
_IDENTITY: Final = ("cert", "key", "token", "token_file")


@dataclass(frozen=True, slots=True)
class CredentialFlags:
    """Credentials on a command line; None if a flag is not given."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    name: str | None = None
    token_file: Path | None = None


@dataclass(frozen=True, slots=True)
class FoundCredentials:
    """The credentials of a client, and where each was found.

    Attributes:
        sources: for each setting that was found, the flag, variable or file that has it.
        file: the file of the first master that has one; if none has, that of the first master.
    """

    security: ClientSecurity
    sources: Mapping[str, str] = field(default_factory=dict)
    file: Path | None = None

    @property
    def text(self) -> str:
        """The credential that proves the caller's identity, and where it was found."""
        sources, security = self.sources, self.security
        if "token_file" in sources:
            return f"the token in {security.token_file} ({sources['token_file']})"
        if "token" in sources:
            return f"the token {_token_id(security.token)}in {sources['token']}"
        if "cert" in sources:
            return f"the certificate {security.cert} ({sources['cert']})"
        return NO_CREDENTIAL


class MissingCredential:
    """Tells once that a program waits without a credential; a cluster may not require one."""

    def __init__(self, find: Callable[[], FoundCredentials], ways: str) -> None:
        """Search with `find`; `ways` names the flags that give the program a credential."""
        self._find, self._ways, self._is_told = find, ways, False

    def advice(self) -> str:
        """Return what to append to the reason why no master can be reached; once, else nothing."""
        if self._is_told:
            return ""
        try:
            found = self._find()
        except InvalidRequest:
            return ""  # the reason says it
        self._is_told = True
        if found.text != NO_CREDENTIAL:
            return ""
        where = "" if found.file is None else f", or write {found.file}, which is looked for again"
        return f"; no credential was found: if the cluster requires one, {self._ways}{where}"


def find_credentials(
    flags: CredentialFlags,
    masters: tuple[Address, ...],
    environment: Mapping[str, str] = os.environ,
) -> FoundCredentials:
    """Return credentials for these masters, maybe none; raises InvalidRequest if unusable."""
    path = _file_of(masters, environment)
    settings: dict[str, str] = {}
    sources: dict[str, str] = {}
    has_identity = False
    for source in (_from_flags(flags), _from_environment(environment), _from_file(path)):
        is_skipped, own = has_identity, {key: value for key, (value, _) in source.items()}
        if "token" in own and "token_file" in own:
            named = " and ".join(source[key][1] for key in ("token", "token_file"))
            raise InvalidRequest(f"two tokens: {named}; unset one of them")
        for key, (value, where) in source.items():
            if key in settings or (is_skipped and key in _IDENTITY):
                continue
            settings[key], sources[key] = value, where
            has_identity = has_identity or key in _IDENTITY
    return FoundCredentials(_security(settings), sources, path)


def credentials_file(master: Address, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the path of the credentials file for a master; None if there is no home directory."""
    config = environment.get("XDG_CONFIG_HOME", "")
    if not config and environment.get("HOME", ""):
        config = f"{environment['HOME']}/.config"
    if not config:
        return None
    host = "127.0.0.1" if master.host == "localhost" else master.host
    return Path(config, "croupier", "credentials", f"{Address(host, master.port)}.toml")


def _file_of(masters: tuple[Address, ...], environment: Mapping[str, str]) -> Path | None:
    """Return the credentials file of the first master that has one, else that of the first."""
    paths = [credentials_file(master, environment) for master in masters]
    return next((path for path in paths if path is not None and _exists(path)), paths[0])


def _exists(path: Path) -> bool:
    return os.access(path, os.F_OK)


def _security(settings: Mapping[str, str]) -> ClientSecurity:
    def path(key: str) -> Path | None:
        return Path(settings[key]) if key in settings else None

    return ClientSecurity(
        path("ca"),
        path("cert"),
        path("key"),
        settings.get("name", ""),
        settings.get("token", ""),
        path("token_file"),
    )


_Source = dict[str, tuple[str, str]]


def _from_flags(flags: CredentialFlags) -> _Source:
    given = {key: getattr(flags, key) for key in _FLAGS}
    return {key: (str(value), _FLAGS[key]) for key, value in given.items() if value is not None}


def _from_environment(environment: Mapping[str, str]) -> _Source:
    return {
        key: (environment[variable], variable)
        for key, variable in _VARIABLES.items()
        if environment.get(variable, "")
    }


def _from_file(path: Path | None) -> _Source:
    """Return the settings in a private credentials file; none if there is no file."""
    if path is None or not _exists(path):
        return {}
    import tomllib

    try:
        settings = tomllib.loads(read_file(path, is_private=True).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise InvalidRequest(f"{path} is not a TOML file") from None
    unknown = sorted(set(settings) - set(_KEYS))
    if unknown:
        raise InvalidRequest(f"{path}: unknown key {unknown[0]!r}; keys are {', '.join(_KEYS)}")
    for key, value in settings.items():
        if not isinstance(value, str) or not value:
            raise InvalidRequest(f"{path}: {key} is not a text")
        if key in ("ca", "cert", "key"):
            settings[key] = str(path.parent / Path(value).expanduser())
    return {key: (value, str(path)) for key, value in settings.items()}


def _token_id(token: str) -> str:
    with suppress(InvalidRequest):
        return f"{BearerToken.parse(token).token_id} "
    return ""
