"""A throttle for log lines that repeat: the first is written at once, others once in a while."""

from __future__ import annotations

MAX_KEYS = 100


class LogThrottle:
    """Remembers which lines were written, and when."""

    def __init__(self, every_s: float = 30.0) -> None:
        """Let the same line through again after `every_s` seconds."""
        self._every_s = every_s
        self._written: dict[object, float] = {}
        self._suppressed = 0

    def is_due(self, key: object, now: float) -> bool:
        """Return whether to write the line `key` at `now` (seconds, monotonic); it then counts."""
        written = self._written.get(key)
        if written is not None and now - written < self._every_s:
            self._suppressed += 1
            return False
        if len(self._written) >= MAX_KEYS:
            self._written.clear()
        self._written[key] = now
        return True

    def take_suppressed(self) -> int:
        """Return the number of suppressed lines since the last call."""
        suppressed, self._suppressed = self._suppressed, 0
        return suppressed

    def forget(self) -> None:
        """Write every line at once the next time."""
        self._written.clear()
