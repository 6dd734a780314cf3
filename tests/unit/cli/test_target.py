"""Flags that several commands share, and the place of --master."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.cli.flags import LOCAL, Target, parse_grace_ms
from croupier.cli.printer import MAX_LINE, LinePrefixer, prefix_of
from croupier.ctl.__main__ import connection_after_command
from croupier.ctl.app import load_commands
from croupier.ctl.commands.task import kill_request
from croupier.model.errors import InvalidRequest


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
