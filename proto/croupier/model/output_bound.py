"""The bound of a task's output: how much of stdout and of stderr its agent keeps.

The output of each stream counts as files of one size. Once a further file is begun, the oldest one
is removed. So between `files - 1` and `files` times `size` bytes are kept, and they keep their
offsets in the stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from croupier.model.errors import InvalidRequest
from croupier.model.scalar import format_scalar, parse_scalar

# The unit in which file systems free disk space.
BLOCK: Final = 4096
LEAST_SIZE: Final = 64 * 1024
MAX_SIZE: Final = 2**50
LEAST_FILES: Final = 2
MAX_FILES: Final = 1000
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class OutputBound:
    """The number of files that are kept of each stream, and the size of each.

    Attributes:
        size: bytes; 0: of a task, the agent's default; of an agent, without bound.
        files: 0: the agent's default.
    """

    size: int = 0
    files: int = 0

    def check(self) -> None:
        """Check the ranges; raises InvalidRequest if one is out of range."""
        if self.size and not LEAST_SIZE <= self.size <= MAX_SIZE:
            raise InvalidRequest("the size of an output file must be at least 64KB, at most 1PB")
        if self.files and not LEAST_FILES <= self.files <= MAX_FILES:
            raise InvalidRequest(f"between {LEAST_FILES} and {MAX_FILES} output files are kept")

    def or_else(self, default: OutputBound) -> OutputBound:
        """Return the bound with the values of `default` where it has none."""
        return OutputBound(self.size or default.size, self.files or default.files)

    def cut(self, written: int) -> int:
        """Return how many bytes at the beginning are removed once `written` bytes are there."""
        if not self.size:
            return 0
        begun = written // self.size
        return max(0, begun - self.files + 1) * self.size // BLOCK * BLOCK


NO_OUTPUT_BOUND: Final = OutputBound()


def parse_output_size(text: str) -> int:
    """Return the bytes in `text`, such as `64MB`; raises InvalidRequest if it is not an amount."""
    try:
        return parse_scalar("disk", text) * _MIB // 1000
    except InvalidRequest:
        raise InvalidRequest(f"{text.strip()[:80]!r} is not a size such as 64MB") from None


def format_output_size(size: int) -> str:
    """Return the text that `parse_output_size` reads."""
    return format_scalar("disk", size * 1000 // _MIB)
