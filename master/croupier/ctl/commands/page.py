"""`croupier page`: the address of the web page, and what a person needs to sign in to it.

Rule: no token is printed unless it was asked for, and none is ever part of an address.
"""

from __future__ import annotations

import socket
import ssl
import sys
from collections.abc import Iterator
from hashlib import sha256
from typing import Annotated, Final
from urllib.parse import urlsplit

from cyclopts import Parameter

from croupier.cli.flags import LOCAL, MasterFlag
from croupier.cli.terminal import print_lines
from croupier.ctl.app import app
from croupier.ctl.operation import ask
from croupier.model.errors import InvalidRequest, NotFound
from croupier.net.credential_search import FoundCredentials
from croupier.net.credentials import ClientSecurity, read_token
from croupier.v1 import operator_pb2 as pb

HOW_TO_GET_ONE: Final = (
    "no token was found: the page needs one, which `croupier token create client NAME` makes"
    " (an administrator can)"
)


@app.command(name="page")
def page(
    *,
    show_token: Annotated[bool, Parameter(negative="")] = False,
    browser: Annotated[bool, Parameter(name="--open", negative="")] = False,
    master: MasterFlag = LOCAL,
) -> None:
    """Print the address of the web page, and how to sign in to it.

    The leading master serves the page. A browser warns if it does not know the authority of the
    master's certificate: the command prints what to import, or what to compare.

    Args:
        show_token: Print only the token that this command line uses, for example for the clipboard:
            croupier page --show-token | xclip. The page asks for it.
        browser: Open the page in a browser. The token is not passed to it.
    """
    found = master.credentials()
    if show_token:
        token = _token(found.security)
        if not token:
            raise InvalidRequest(HOW_TO_GET_ONE)
        print(token)
        return
    address: str = ask(master, "GetMaster", pb.GetMasterRequest()).http_address
    if urlsplit(address).scheme not in ("http", "https"):
        raise NotFound(f"the master names no web address: {address[:80]!r}")
    print_lines(*page_lines(f"{address}/", found))
    if browser:
        import webbrowser

        if not webbrowser.open(f"{address}/"):
            print("no browser could be started", file=sys.stderr)


def page_lines(url: str, found: FoundCredentials) -> Iterator[str]:
    """Yield where the page is, and what a person needs to sign in."""
    yield url
    security = found.security
    if security.has_token:
        yield f"sign in with {found.text}; croupier page --show-token prints it"
    elif security.is_encrypted:
        yield HOW_TO_GET_ONE
    if security.ca is not None:
        yield f"if the browser does not know the authority, import {security.ca}"
        fingerprint = _fingerprint(url, security)
        if fingerprint:
            yield f"or compare the SHA-256 fingerprint that it shows: {fingerprint}"


def _token(security: ClientSecurity) -> str:
    if security.token or security.token_file is None:
        return security.token
    return read_token(security.token_file)


def _fingerprint(url: str, security: ClientSecurity) -> str:
    """Return the fingerprint of the page's certificate; empty if there is no valid one.

    It is that of a master, by the authority: a person trusts what is printed here.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 443
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(security.ca and security.ca.expanduser())
        name = security.target_name() or host
        with (
            socket.create_connection((host, port), timeout=3) as plain,
            context.wrap_socket(plain, server_hostname=name) as tls,
        ):
            certificate = tls.getpeercert(binary_form=True)
    except (OSError, InvalidRequest):
        return ""
    return sha256(certificate or b"").digest().hex(":").upper()
