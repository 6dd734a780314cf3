"""Instances and slots.

An instance is one task, from the decision to launch it to its end. A slot is one of the wanted
instances, over the tasks that it has in turn.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import StrEnum

from croupier.apps.service.core.rules import Check, Health, Restart


class Stop(StrEnum):
    """Reasons for which the controller ends an instance."""

    NONE = ""
    OUTDATED = "outdated"
    UNHEALTHY = "unhealthy"
    SURPLUS = "surplus"
    UNREACHABLE = "unreachable"
    PREEMPTED = "preempted"
    SERVICE_STOPPED = "service stopped"


@dataclass(slots=True)
class Instance:
    """One task of the service. Times are seconds since the epoch; None: not so.

    Attributes:
        slot: the number of the instance that it is, from 0.
        version: the number of its version; 0 if another controller started it.
        host: where its ports are reached.
        place: the value of the spread attribute.
        launched_at: of the decision to launch it, which precedes the launch.
        healthy_since: start of the present time without an unhealthy state.
        unreachable_since: the master has lost its agent.
        stop: why it is being ended; NONE if it is wanted.
        killed_at: when its kill was last sent.
        misses: consecutive failed checks.
        check_due: time of the next check.
        checked: result of the last check, for people.
    """

    task_id: str
    slot: int
    version: int
    launched_at: float
    agent_id: str = ""
    host: str = ""
    ports: tuple[int, ...] = ()
    place: str = ""
    running_since: float | None = None
    healthy_since: float | None = None
    was_healthy: bool = False
    unreachable_since: float | None = None
    stop: Stop = Stop.NONE
    killed_at: float | None = None
    misses: int = 0
    check_due: float = 0.0
    is_checking: bool = False
    checked: str = ""

    @property
    def is_stopping(self) -> bool:
        """Whether the controller has decided to end it."""
        return self.stop is not Stop.NONE

    def is_available(self, health: Health, settle_s: float, now: float) -> bool:
        """Return whether it serves: healthy for `settle_s`, wanted, and not out of sight."""
        if self.healthy_since is None or self.is_stopping:
            return False
        if self.unreachable_since is not None and not health.check.is_probed:
            return False
        return now - self.healthy_since >= settle_s

    def on_running(self, now: float) -> None:
        """Record that the task runs and that its agent is in sight."""
        self.unreachable_since = None
        if self.running_since is None:
            self.running_since = now
            self.check_due = now

    def observe_time(self, health: Health, now: float) -> None:
        """Become healthy after some time, if no check of the controller decides it.

        A check by command ends its own task, so one that still runs after the window has passed
        a check.
        """
        if self.running_since is None or self.healthy_since is not None:
            return
        window_s = health.window_s if health.check is Check.COMMAND else 0.0
        if not health.check.is_probed and now - self.running_since >= window_s:
            self._become_healthy(now)

    def is_check_due(self, health: Health, now: float) -> bool:
        """Return whether the controller should check it now."""
        return (
            health.check.is_probed
            and self.running_since is not None
            and not (self.is_stopping or self.is_checking)
            and now >= self.check_due
        )

    def on_check(self, health: Health, *, passed: bool, text: str, now: float) -> None:
        """Apply the result of a check."""
        self.is_checking = False
        self.check_due = max(self.check_due + health.interval_s, now)
        self.checked = text
        if self.running_since is None or self.is_stopping:
            return
        if passed:
            self.misses = 0
            if self.healthy_since is None:
                self._become_healthy(now)
        elif self.was_healthy or now - self.running_since > health.grace_s:
            self.misses += 1
            if self.misses >= health.failures:
                self.healthy_since = None

    def is_sick(self, health: Health) -> bool:
        """Return whether it has failed as many checks as its version allows."""
        return health.check.is_probed and self.misses >= health.failures

    def _become_healthy(self, now: float) -> None:
        self.healthy_since = now
        self.was_healthy = True


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
