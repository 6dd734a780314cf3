"""Virtual time: what is to happen, in order, and a trace of what did.

Rule: everything that happens is put on one agenda and taken off it by time, then by the order
in which it was put there; nothing depends on hashing or on the real clock, so a world with the
same seed does the same again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from hashlib import blake2b
from itertools import count

Action = Callable[[], None]


class Kernel:
    """The agenda.

    Attributes:
        now: virtual seconds since the beginning.
        happened: how many actions were done.
        lines: what was traced, if anything is.
    """

    def __init__(self, traced: bool = False) -> None:
        """`traced` keeps a line of each thing that is told to `trace`."""
        self.now = 0.0
        self.happened = 0
        self.lines: list[str] | None = [] if traced else None
        self._agenda: list[tuple[float, int, Action]] = []
        self._numbers = count()

    @property
    def is_traced(self) -> bool:
        """Whether it is of use to make up a line."""
        return self.lines is not None

    def trace(self, line: str) -> None:
        """Write down what happens now."""
        if self.lines is not None:
            self.lines.append(f"{self.now:9.4f} {line}")

    def digest(self) -> str:
        """A number of the whole trace."""
        return blake2b("\n".join(self.lines or ()).encode(), digest_size=16).hexdigest()

    def at(self, when: float, action: Action) -> None:
        """Have `action` done at `when`; a time that has passed is now."""
        heapq.heappush(self._agenda, (max(when, self.now), next(self._numbers), action))

    def after(self, seconds: float, action: Action) -> None:
        """Have `action` done in so many seconds."""
        self.at(self.now + seconds, action)

    def run(self, until: float) -> None:
        """Let time pass to `until`."""
        agenda = self._agenda
        while agenda and agenda[0][0] <= until:
            self.now, _, action = heapq.heappop(agenda)
            self.happened += 1
            action()
        self.now = max(self.now, until)
