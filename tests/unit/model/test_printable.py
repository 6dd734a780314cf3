"""Unprintable characters are escaped."""

from __future__ import annotations

import pytest

from croupier.model.printable import printable, printable_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, caf\u00e9 \u6f22", "plain text, caf\u00e9 \u6f22"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("\x9b31m", "\\x9b31m"),
        ("\ud800", "\\ud800"),
        ("", ""),
    ],
)
def test_unprintable_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert shown.isprintable()


def test_line_ends_are_kept_in_printable_lines() -> None:
    assert printable_lines("a\x07\nb\n") == "a\\x07\nb\n"
