"""One of the wanted instances, over the tasks that it has in turn."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from croupier.apps.service.core.rules import Restart


@dataclass(slots=True)
class Slot:
    """Place number `index` of the service.

    Attributes:
        version: the version that it shall run.
        is_surging: its new instance starts before the old one is ended.
        failures: of its instances, without a long time available between them.
        not_before: no launch before this time.
        wanted_since: since when it lacks an instance.
        down_since: since when no instance of its version is available; None: one is.
        up_since: since when one is; None: none is.
        ailing_until: after the kill of an unhealthy instance; see `Service`.
        last_failure: for people.
    """

    index: int
    version: int
    down_since: float | None
    is_surging: bool = False
    failures: int = 0
    not_before: float = 0.0
    wanted_since: float | None = None
    up_since: float | None = None
    ailing_until: float = 0.0
    last_failure: str = ""

    def assign(self, version: int, now: float, *, is_surging: bool = False) -> None:
        """Give it a version; earlier failures are forgotten."""
        self.version, self.is_surging = version, is_surging
        self.failures, self.not_before, self.last_failure = 0, 0.0, ""
        self.down_since, self.up_since = now, None

    def on_failure(self, text: str, key: str, restart: Restart, now: float) -> None:
        """Count a failure: the next launch waits longer."""
        self.failures += 1
        self.last_failure = text
        self.not_before = now + backoff_s(restart, self.failures, key)

    def on_loss(self, key: str, restart: Restart, now: float) -> None:
        """Record an end that is not the instance's fault: the next launch waits shortly."""
        self.not_before = max(self.not_before, now + backoff_s(restart, 1, key))

    def observe(self, is_up: bool, restart: Restart, now: float) -> None:
        """Record whether an instance of its version is available."""
        if not is_up:
            self.up_since = None
            if self.down_since is None:
                self.down_since = now
            return
        self.down_since = None
        self.is_surging = False
        if self.up_since is None:
            self.up_since = now
        if self.failures and now - self.up_since >= restart.reset_s:
            self.failures, self.last_failure = 0, ""


def backoff_s(restart: Restart, failures: int, key: str) -> float:
    """Return the wait before a launch: doubled for each failure, with jitter by `key`.

    The jitter is drawn from the key, so that the same events give the same decisions.
    """
    bound = min(restart.most_s, restart.first_s * 2.0 ** min(failures - 1, 40))
    return bound * (0.5 + 0.5 * (zlib.crc32(key.encode()) / 2**32))
