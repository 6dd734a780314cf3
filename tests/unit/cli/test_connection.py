"""Calls to a master that are cancelled, that it does not know, or that lack a credential."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.cli import connection
from croupier.cli.connection import Master, connected, missing_credential, with_advice
from croupier.cli.flags import LOCAL, Target, parse_grace_ms
from croupier.cli.printer import MAX_LINE, LinePrefixer, prefix_of
from croupier.ctl.__main__ import connection_after_command
from croupier.ctl.app import load_commands
from croupier.ctl.commands.task import kill_request
from croupier.model.errors import InvalidRequest, PermissionDenied, Unauthenticated, Unavailable
from croupier.net.address import Address
from croupier.net.credential_search import FoundCredentials
from croupier.net.credentials import ClientSecurity, make_token
from croupier.net.transport import make_channel
from croupier.v1 import operator_pb2 as pb
from tests.harness.operators import ScriptedOperator, serving

ADDRESS = Address("127.0.0.1", 1)


async def ends_by_status(request: object, timeout: float) -> Any:
    """End with a gRPC status when the task is cancelled."""
    try:
        await asyncio.sleep(timeout)
    except asyncio.CancelledError:
        nothing = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(grpc.StatusCode.CANCELLED, nothing, nothing) from None


async def test_a_cancelled_call_ends_its_task() -> None:
    async with make_channel(ADDRESS) as channel:
        master = Master(ADDRESS, channel)

        async def insist() -> None:
            for _ in range(2):
                try:
                    await master.ask(ends_by_status, object(), 0.5)  # type: ignore[arg-type]
                except Unavailable:
                    continue

        insisting = asyncio.create_task(insist())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        insisting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(insisting, 30)


async def is_unknown(request: object, timeout: float) -> Any:
    """Fail as an unknown method does."""
    nothing = grpc.aio.Metadata()
    raise grpc.aio.AioRpcError(grpc.StatusCode.UNIMPLEMENTED, nothing, nothing)


async def test_an_unknown_method_means_an_older_master() -> None:
    async with make_channel(ADDRESS) as channel:
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1 is of an older release"):
            await Master(ADDRESS, channel).ask(is_unknown, object())  # type: ignore[arg-type]


def test_a_refusal_names_the_credential_and_the_next_command_once() -> None:
    found = FoundCredentials(ClientSecurity(token="hidden"), {"token": "CROUPIER_TOKEN"})
    denied = with_advice(PermissionDenied("may not kill"), found)
    assert isinstance(denied, PermissionDenied)
    assert str(denied).startswith("may not kill; you used the token in CROUPIER_TOKEN: ")
    assert "croupier access whoami" in str(denied)
    assert with_advice(denied, found) is denied
    assert "croupier doctor" in str(with_advice(Unauthenticated("who?"), found))
    nothing = FoundCredentials(ClientSecurity())
    assert "give --token-file or --tls-cert" in str(with_advice(Unauthenticated("who?"), nothing))


async def test_only_a_caller_with_a_token_is_told_to_list_the_token_ports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "FIND_S", 0.5)
    async with serving(ScriptedOperator()) as follower:
        follower.answers[pb.GetMasterRequest] = pb.GetMasterResponse()
        for token, text in (("", "no master leads right now"), (make_token().text, "token ports")):
            monkeypatch.setenv("CROUPIER_TOKEN", token)
            with pytest.raises(Unavailable, match=text):
                async with connected(Target.parse(follower.address)):
                    pass


# A command that waits without a credential says so once.


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


# Flags that several commands share, and the place of --master.


def test_a_target_is_one_address_or_several() -> None:
    assert str(Target.parse("m1")) == "m1:5050"
    assert str(Target.parse("m1:1, m2:2")) == "m1:1,m2:2"
    assert str(LOCAL) == "127.0.0.1:5050"
    with pytest.raises(InvalidRequest):
        Target.parse("m1:x")


def test_a_kill_may_override_the_grace() -> None:
    assert not kill_request("t1", None).HasField("kill_policy")
    assert kill_request("t1", 0).HasField("kill_policy")
    assert kill_request("t1", parse_grace_ms("1.5")).kill_policy.grace_ms == 1500


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "86401", "25h"])
def test_a_grace_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_grace_ms(text)


def test_ids_are_checked_before_they_are_sent() -> None:
    with pytest.raises(InvalidRequest, match="task id"):
        kill_request("a/b", None)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--master m agents --json", "agents --master m --json"),
        ("--master=m why f1", "why --master=m f1"),
        ("--master m weights", "weights --master m"),
        ("--master m weights --json", "weights --master m --json"),
        ("--master m quota set ads --limit cpus:4", "quota set --master m ads --limit cpus:4"),
        ("--master m run -- sh -c x", "run --master m -- sh -c x"),
        ("--master m token create join --uses 2", "token create join --master m --uses 2"),
        ("--master m token create", "token create --master m"),
        ("weights --master m", "weights --master m"),
        ("--master m", "--master m"),
        ("--master", "--master"),
        (
            "--tls-ca c --master=m --token-file t agents",
            "agents --tls-ca c --master=m --token-file t",
        ),
        ("", ""),
    ],
)
def test_the_master_may_be_named_before_the_command(given: str, meant: str) -> None:
    load_commands()
    assert connection_after_command(given.split()) == meant.split()


# Prefixes of the lines of several copies.


def test_only_whole_lines_are_printed() -> None:
    lines = LinePrefixer(b"[1] ")
    assert lines.feed(b"a") == b""
    assert lines.feed(b"b\nc\n\nd") == b"[1] ab\n[1] c\n[1] \n"
    assert lines.finish() == b"[1] d\n"
    assert lines.finish() == b""


def test_a_very_long_line_is_printed_in_pieces() -> None:
    lines = LinePrefixer(b"> ")
    assert lines.feed(b"x" * MAX_LINE) == b""
    assert lines.feed(b"y") == b"> " + b"x" * MAX_LINE + b"y\n"
    assert lines.finish() == b""


@given(st.lists(st.binary(max_size=20)))
def test_lines_do_not_depend_on_chunks(chunks: list[bytes]) -> None:
    lines = LinePrefixer(b"> ")
    shown = b"".join(map(lines.feed, chunks)) + lines.finish()
    whole = b"".join(chunks)
    expected = whole.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert shown == b"".join(b"> " + line + b"\n" for line in expected)


def test_a_prefix_is_coloured_on_request() -> None:
    assert prefix_of(7, coloured=False) == b"[7] "
    assert prefix_of(7, coloured=True).startswith(b"\x1b[")
    assert prefix_of(7, coloured=True).endswith(b"[7] \x1b[0m")
