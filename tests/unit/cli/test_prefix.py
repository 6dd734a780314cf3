"""Prefixes of the lines of several copies."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from croupier.cli.printer import MAX_LINE, LinePrefixer, prefix_of


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
