"""Client certificates of HTTP requests: their names count until they expire."""

from __future__ import annotations

import ssl
import time
from pathlib import Path
from unittest import mock

from aiohttp.test_utils import make_mocked_request

from croupier.net.server_tls import ServerTls, TlsFiles
from croupier.process.http.credentials import credential_of
from tests.harness.certificates import authority

URI = "croupier://test/client/prometheus"


def uris(expires_in_s: float | None) -> tuple[str, ...]:
    certificate: dict[str, object] = {"subjectAltName": (("URI", URI), ("DNS", "host"))}
    if expires_in_s is None:
        certificate = {}
    else:
        at = time.gmtime(time.time() + expires_in_s)
        certificate["notAfter"] = time.strftime("%b %d %H:%M:%S %Y GMT", at)
    transport = mock.Mock()
    tls = mock.Mock()
    tls.getpeercert = lambda binary_form=False: b"der" if binary_form else certificate
    transport.get_extra_info = {"ssl_object": tls}.get
    return credential_of(make_mocked_request("GET", "/metrics", transport=transport)).uris


def test_only_a_certificate_that_is_valid_now_names_its_holder() -> None:
    assert uris(60) == (URI,)
    assert uris(-60) == ()
    assert uris(None) == ()


def test_sessions_cannot_be_resumed(tmp_path: Path) -> None:
    """A resumed session would outlive the certificate that it began with."""
    files = authority().issue(tmp_path, "agent/a1")
    context = ServerTls.load(TlsFiles(files.cert, files.key, files.ca), time.time()).http
    assert context.num_tickets == 0
    assert context.options & ssl.OP_NO_TICKET
