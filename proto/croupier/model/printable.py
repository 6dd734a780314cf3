"""Escapes in text of peers, for terminals and logs."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Return `text` with each unprintable character, such as an escape, as `\x1b`.

    These are line ends, tabs, control characters, marks of writing direction and lone surrogates,
    but not spaces. O(length).
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def printable_lines(text: str) -> str:
    """Return `text` as `printable` does, except that line ends stay."""
    return "\n".join(map(printable, text.split("\n")))
