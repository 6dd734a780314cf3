"""Text of peers, made safe for terminals and logs: the one place that escapes it."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""`text` with each character that does not print, such as an escape, as `\x1b`.

    Line ends, tabs, control characters, marks that turn the direction of writing, and lone
    surrogates are among them; spaces are not. O(length).
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def printable_lines(text: str) -> str:
    """As `printable`, but lines stay lines."""
    return "\n".join(map(printable, text.split("\n")))
