"""How a framework proves who it is, and which master it trusts."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from croupier.net.address import Address
from croupier.net.credential_search import (
    CredentialFlags,
    FoundCredentials,
    MissingCredential,
    find_credentials,
)
from croupier.net.credentials import ClientSecurity

PathArg = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of a framework; `Credentials()` is none, in plain text.

    Files are read for each connection, so a renewed certificate or token needs no restart.

    Attributes:
        ca: certificates (PEM) of the authorities that sign masters' certificates; None for plain
            text.
        cert: certificate (PEM) of the framework; None for none.
        key: its private key (PEM).
        name: DNS name in the masters' certificates; needed only if `ca` names no cluster, and the
            host that the framework connects to is not in them.
        token: bearer token, in place of a certificate. It is not in the representation.
        token_file: private file with a token, which is read in its place.
    """

    ca: PathArg | None = None
    cert: PathArg | None = None
    key: PathArg | None = None
    name: str = ""
    token: str = field(default="", repr=False)
    token_file: PathArg | None = None


class CredentialSource:
    """Where a framework finds its credentials, for each connection anew.

    So a framework that started before its cluster had credentials connects once they exist.

    Attributes:
        advice: returns what to append to the reason why no master can be reached; mostly nothing.
    """

    def __init__(
        self,
        credentials: Credentials | Callable[[], Credentials] | None,
        masters: tuple[Address, ...],
    ) -> None:
        """Search once. Without `credentials`, search the environment and the masters' file.

        Raises:
            InvalidRequest: if what is found cannot be used.
        """
        self._credentials, self._masters = credentials, masters
        ways = "start it with CROUPIER_TOKEN_FILE or CROUPIER_TLS_CERT"
        missing = MissingCredential(self._search, ways)
        self.advice = missing.advice if credentials is None else str
        self.find().check()

    def find(self) -> ClientSecurity:
        """Return the present settings of the connection.

        Raises:
            InvalidRequest: if a file cannot be used.
        """
        given = self._credentials
        if given is None:
            return self._search().security
        one = given if isinstance(given, Credentials) else given()
        paths = (one.ca, one.cert, one.key, one.token_file)
        ca, cert, key, token_file = (None if path is None else Path(path) for path in paths)
        return ClientSecurity(ca, cert, key, one.name, one.token, token_file)

    def _search(self) -> FoundCredentials:
        return find_credentials(CredentialFlags(), self._masters)
