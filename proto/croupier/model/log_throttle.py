"""What happens again and again is said when it begins, and then once in a while."""

from __future__ import annotations

MAX_KEYS = 100


class Repeats:
    """Remembers what was said, and when."""

    def __init__(self, every_s: float = 30.0) -> None:
        """The same is said again after `every_s` seconds."""
        self._every_s = every_s
        self._said: dict[object, float] = {}

    def is_due(self, what: object, now: float) -> bool:
        """Whether to say `what`, at `now` (seconds, monotonic); it then counts as said."""
        said = self._said.get(what)
        if said is not None and now - said < self._every_s:
            return False
        if len(self._said) >= MAX_KEYS:
            self._said.clear()
        self._said[what] = now
        return True

    def forget(self) -> None:
        """It is over: the next time is news."""
        self._said.clear()
