"""The address of the web page, and what a person needs to sign in to it.

Rule: no token is printed unless it was asked for, and none is ever part of an address.
"""

from __future__ import annotations

import socket
import ssl
import sys
from collections.abc import Iterator
from hashlib import sha256
from typing import Final
from urllib.parse import urlsplit

from croupier.cli.connection import Master, run
from croupier.cli.flags import Target
from croupier.cli.terminal import print_lines
from croupier.model.errors import InvalidRequest, NotFound
from croupier.net.credential_search import FoundCredentials
from croupier.net.credentials import ClientSecurity, read_token
from croupier.v1 import operator_pb2 as pb

HOW_TO_GET_ONE: Final = (
    "no token was found: the page needs one, which `croupier token create client NAME` makes"
    " (an administrator can)"
)


def print_token(target: Target) -> None:
    """Print the token that other commands use with these flags.

    Raises:
        InvalidRequest: if there is none.
    """
    token = _token(target.credentials().security)
    if not token:
        raise InvalidRequest(HOW_TO_GET_ONE)
    print(token)


def open_page(target: Target, *, in_browser: bool) -> None:
    """Print where the page is and how to sign in; open it in a browser if asked.

    Raises:
        NotFound: if the master serves no page.
        CroupierError: if no master can be reached.
    """

    async def address_of(master: Master) -> str:
        found: pb.GetMasterResponse = await master.ask(
            master.service.GetMaster, pb.GetMasterRequest()
        )
        return found.http_address

    address = run(target, address_of)
    if urlsplit(address).scheme not in ("http", "https"):
        raise NotFound(f"the master names no web address: {address[:80]!r}")
    print_lines(*page_lines(f"{address}/", target.credentials()))
    if in_browser:
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
