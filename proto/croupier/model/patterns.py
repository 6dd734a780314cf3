"""Regular expressions from peers: matched in linear time, in bounded memory.

RE2 never backtracks, so no pattern can block the process that matches it. In return it has no
back-references and no look-around. A pattern that compiles to too many instructions is refused.

RE2 is imported with the first pattern: a framework without patterns runs without it.
"""

from __future__ import annotations

from typing import Protocol, cast

from croupier.model.errors import InvalidRequest

MAX_PATTERN = 1024
# Instructions, as RE2 counts them: a match takes at most that many steps for each character, some
# 5 ns each. A list of thirty host names has about 1,000.
MAX_PROGRAM = 1000
# Bytes for a pattern's program and for the states that RE2 remembers of earlier matches.
# Mesos' 4 KiB refuses every list of host names.
MAX_MEMORY = 64 * 1024


class _Compiled(Protocol):
    """The part of a compiled RE2 pattern that is used; the library has no type hints."""

    @property
    def programsize(self) -> int: ...

    def fullmatch(self, text: bytes) -> object | None: ...


class Pattern:
    """A compiled regular expression in RE2's syntax. Immutable.

    Attributes:
        text: the source of the pattern.
        size: number of instructions, the cost of a match for each character.
    """

    __slots__ = ("_compiled", "size", "text")

    def __init__(self, text: str) -> None:
        """Compile `text`.

        Raises:
            InvalidRequest: if it is malformed, over 1,024 bytes, or too complex; or if RE2 is
                not installed.
        """
        self.text = text
        self._compiled = _compile(_encoded(text))
        self.size = self._compiled.programsize
        if self.size > MAX_PROGRAM:
            raise InvalidRequest(
                f"the pattern {text[:80]!r} is too complex:"
                f" {self.size} instructions, at most {MAX_PROGRAM} are allowed"
            )

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches the whole `text`. O(size x length)."""
        return self._compiled.fullmatch(text.encode(errors="replace")) is not None


def _encoded(text: str) -> bytes:
    # Checked before the text is encoded, so that a huge text is not copied.
    if len(text) > MAX_PATTERN:
        raise InvalidRequest(f"a pattern of {len(text)} characters; at most {MAX_PATTERN} bytes")
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest("the pattern is not valid text") from None
    if len(encoded) > MAX_PATTERN:
        raise InvalidRequest(f"a pattern of {len(encoded)} bytes; at most {MAX_PATTERN}")
    return encoded


def _compile(pattern: bytes) -> _Compiled:
    try:
        import re2
    except ImportError:
        raise InvalidRequest(
            "regular expressions need RE2, which is not installed: pip install google-re2"
        ) from None
    options = re2.Options()
    options.max_mem = MAX_MEMORY
    options.never_capture = True
    options.log_errors = False
    try:
        return cast("_Compiled", re2.compile(pattern, options))
    except re2.error as error:
        why = error.args[0] if error.args else "it is malformed"
        reason = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        shown = pattern[:80].decode(errors="replace")
        raise InvalidRequest(f"the pattern {shown!r} cannot be used: {reason}") from None
