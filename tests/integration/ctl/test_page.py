"""`croupier page`: the address of the web page, and how to sign in."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from pathlib import Path

from croupier.ctl.commands.page import page_lines
from croupier.net.credential_search import FoundCredentials
from croupier.net.credentials import ClientSecurity
from croupier.v1 import operator_pb2 as pb
from tests.harness.certificates import Authority, authority
from tests.harness.command import croupier
from tests.harness.operators import ScriptedOperator, serving

TOKEN = "crp_0123abcd_" + "x" * 43


async def test_the_address_is_printed_and_the_token_only_if_asked(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.touch(mode=0o600)
    token_file.write_text(TOKEN + "\n")
    scripted = ScriptedOperator()
    scripted.answers[pb.GetMasterRequest] = pb.GetMasterResponse(
        leader=True, http_address="http://127.0.0.1:5080"
    )
    async with serving(scripted) as operator:
        flags = ("--master", operator.address)
        done = await croupier("page", *flags)
        assert (done.code, done.out, done.err) == (0, "http://127.0.0.1:5080/\n", "")
        done = await croupier("page", *flags, "--show-token")
        assert done.code == 2
        assert "croupier token create client NAME" in done.err
        done = await croupier("page", *flags, CROUPIER_TOKEN_FILE=str(token_file))
        assert "sign in with the token in" in done.out
        assert TOKEN not in done.out + done.err
        done = await croupier("page", *flags, "--show-token", CROUPIER_TOKEN_FILE=str(token_file))
        assert done.out == f"{TOKEN}\n"


async def test_the_fingerprint_is_that_of_a_master_only(tmp_path: Path) -> None:
    """A person trusts it, so a server in the middle must not choose it."""
    master = authority().issue(tmp_path / "master", "master/m1")
    agent = authority().issue(tmp_path / "agent", "agent/a1")
    other = Authority().issue(tmp_path / "other", "master/m1")
    told = {}
    for files in (master, agent, other):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.cert, files.key)
        server = await asyncio.start_server(lambda _, out: out.close(), "127.0.0.1", 0, ssl=context)
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        found = FoundCredentials(ClientSecurity(master.ca))
        async with server:
            lines = await asyncio.to_thread(list, page_lines(url, found))
        told[files] = [line for line in lines if "SHA-256" in line]
    der = ssl.PEM_cert_to_DER_cert(master.cert.read_text())
    expected = hashlib.sha256(der).digest().hex(":").upper()
    assert [line.rpartition(" ")[2] for line in told[master]] == [expected]
    assert told[agent] == told[other] == []
