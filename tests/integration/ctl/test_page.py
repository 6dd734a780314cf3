"""`croupier page`: the address of the web page, and how to sign in."""

from __future__ import annotations

from pathlib import Path

from croupier.v1 import operator_pb2 as pb
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


async def test_a_master_without_a_page_is_told() -> None:
    async with serving(ScriptedOperator()) as operator:
        done = await croupier("page", "--master", operator.address)
    assert done.code == 1
    assert "names no address of a page" in done.err
