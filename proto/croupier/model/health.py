"""Problems of an agent, as agents report them to masters and masters to operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# The parts of an agent. A newer agent may name others.
WORK_DIR: Final = "work-dir"
CHECKPOINT: Final = "checkpoint"
DISK: Final = "disk"
LAUNCH: Final = "launch"
PARTS: Final = (WORK_DIR, CHECKPOINT, DISK, LAUNCH)

MAX_PROBLEMS: Final = 8
MAX_PART: Final = 32
MAX_TEXT: Final = 300


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why an agent cannot launch tasks.

    Attributes:
        part: the part of the agent that fails, one of `PARTS`.
        message: for people.
    """

    part: str
    message: str

    def __str__(self) -> str:
        return f"{self.part}: {self.message}"

    @classmethod
    def bounded(cls, part: str, message: str) -> Problem:
        """Make a problem from untrusted text: short, and printable on one line."""
        return cls(_printable(part[:MAX_PART]), _printable(message[:MAX_TEXT]))


def problems_text(problems: tuple[Problem, ...]) -> str:
    """Return all problems on one line; empty if there are none."""
    return "; ".join(map(str, problems))


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
