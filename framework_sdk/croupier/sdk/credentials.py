"""How a framework proves who it is, and which master it trusts."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from croupier.net.address import Address
from croupier.net.credential_search import CredentialFlags, find_credentials
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


def security_for(credentials: Credentials | None, masters: tuple[Address, ...]) -> ClientSecurity:
    """Return checked settings of the connection; None looks in the environment and the file.

    Raises:
        InvalidRequest: if they cannot be used.
    """
    if credentials is None:
        found = find_credentials(CredentialFlags(), masters).security
    else:
        paths = (credentials.ca, credentials.cert, credentials.key, credentials.token_file)
        ca, cert, key, token_file = (None if path is None else Path(path) for path in paths)
        found = ClientSecurity(ca, cert, key, credentials.name, credentials.token, token_file)
    found.check()
    return found
