"""The virtual clock of a world, with a trace of what happened."""

from __future__ import annotations

from hashlib import blake2b

from croupier.sim.kernel import VirtualClock

# The wall clock at the start of each world, in milliseconds since 1970.
EPOCH_MS = 1_700_000_000_000


class TracedClock(VirtualClock):
    """A virtual clock that counts and traces.

    Attributes:
        ran: the number of actions that ran.
        lines: the trace; None if nothing is traced.
    """

    def __init__(self, traced: bool = False) -> None:
        """Begin at 0; with `traced`, keep the lines of `trace`."""
        super().__init__(EPOCH_MS)
        self.ran = 0
        self.lines: list[str] | None = [] if traced else None

    @property
    def is_traced(self) -> bool:
        return self.lines is not None

    def trace(self, line: str) -> None:
        if self.lines is not None:
            self.lines.append(f"{self.now():9.4f} {line}")

    def digest(self) -> str:
        return blake2b("\n".join(self.lines or ()).encode(), digest_size=16).hexdigest()

    def run(self, until: float) -> int:
        ran = super().run(until)
        self.ran += ran
        return ran
