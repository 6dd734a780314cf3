"""The levels of isolation that an agent can have, by the words of `--isolation`."""

from __future__ import annotations

from typing import Final

from croupier.model.errors import InvalidRequest

AUTO: Final = "auto"
NONE: Final = "none"
PROCESS: Final = "process"
# In the order in which they prepare a launch.
LEVELS: Final = (PROCESS, "cgroup", "namespaces", "container")


def parse_levels(text: str) -> tuple[str, ...]:
    """Read `auto`, `none`, or levels separated by commas.

    Raises:
        InvalidRequest: if a word is unknown or given twice, or `auto` or `none` is not alone.
    """
    words = tuple(word.strip() for word in text.split(","))
    if words in ((AUTO,), (NONE,)):
        return words
    unknown = [word for word in words if word not in LEVELS]
    if unknown:
        raise InvalidRequest(
            f"isolation {unknown[0]!r}: give {AUTO}, {NONE}, or some of {','.join(LEVELS)}"
        )
    if len(set(words)) < len(words):
        raise InvalidRequest(f"isolation {text!r} has a word twice")
    return words


def format_levels(levels: tuple[str, ...]) -> str:
    """Return the text that `parse_levels` reads."""
    return ",".join(levels)
