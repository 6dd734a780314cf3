"""The settings of a service and of one version of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

MAX_INSTANCES: Final = 1_000


class Check(StrEnum):
    """How the health of an instance is found."""

    NONE = "none"
    TCP = "tcp"
    HTTP = "http"
    COMMAND = "command"

    @property
    def is_probed(self) -> bool:
        """Whether the controller itself connects to the instance."""
        return self in (Check.TCP, Check.HTTP)


@dataclass(frozen=True, slots=True)
class Health:
    """The health check of a version. Times in seconds.

    Attributes:
        port: index of the instance's port, for TCP and HTTP.
        path: of the HTTP request.
        command: the line for `sh -c`, for COMMAND.
        grace_s: after the start; failed checks do not count in it until the first success.
        timeout_s: a check that takes longer has failed.
        failures: consecutive failed checks that make an instance unhealthy.
    """

    check: Check = Check.NONE
    port: int = 0
    path: str = "/"
    command: str = ""
    grace_s: float = 30.0
    interval_s: float = 5.0
    timeout_s: float = 2.0
    failures: int = 3

    @property
    def window_s(self) -> float:
        """Time in which an instance that passes no check has failed for certain.

        One check more than needed allows for delays of the machine.
        """
        return self.grace_s + (self.failures + 1) * (self.interval_s + self.timeout_s)


@dataclass(frozen=True, slots=True)
class Restart:
    """Waits before an instance that ended by itself is replaced, in seconds.

    Attributes:
        reset_s: an instance that was available for this long starts with short waits again.
    """

    first_s: float = 1.0
    most_s: float = 300.0
    reset_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Update:
    """How a version replaces another.

    Attributes:
        max_unavailable: instances that the controller may make unavailable at once.
        surge: instances that may run beyond the wanted number.
        healthy_within_s: time for a new instance to become available.
        settle_s: an instance is available once it has been healthy for this long.
        failures: failures of one instance, without a long time available between them, that
            end the update.
        rolls_back: whether a failed update returns to the last good version.
    """

    max_unavailable: int = 1
    surge: int = 0
    healthy_within_s: float = 300.0
    settle_s: float = 3.0
    failures: int = 3
    rolls_back: bool = True


@dataclass(frozen=True, slots=True)
class Rules:
    """Settings that apply to all versions.

    Attributes:
        spread: the attribute over whose values instances are spread; empty: none.
        spread_wait_s: time to wait for an offer that keeps the spread even.
        unreachable_s: an instance that cannot be reached for this long is replaced.
    """

    instances: int = 1
    spread: str = ""
    spread_wait_s: float = 5.0
    unreachable_s: float = 60.0
    restart: Restart = Restart()
    update: Update = Update()


@dataclass(frozen=True, slots=True)
class Version:
    """One version of what the instances run.

    Attributes:
        number: from 1, in the order in which versions were applied.
        digest: of its content; equal digests run the same.
        content: the tables of the file, opaque here.
    """

    number: int
    digest: str
    health: Health = Health()
    content: Mapping[str, Any] = field(default_factory=dict)
