"""Executors: tasks that run other tasks of their framework on their agent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from croupier.model.errors import InvalidRequest

# The variables by which an executor finds its agent, and by which the agent knows it.
SOCKET_VARIABLE: Final = "CROUPIER_EXECUTOR_SOCKET"
TOKEN_VARIABLE: Final = "CROUPIER_EXECUTOR_TOKEN"  # noqa: S105 - a name
# How an executor speaks to its agent.
OWN_API: Final = ""
MESOS_API: Final = "mesos"
DEFAULT_REGISTRATION_MS: Final = 60_000
DEFAULT_SHUTDOWN_MS: Final = 5_000
MAX_TIMEOUT_MS: Final = 24 * 3600 * 1000
# Bytes that a task hands to its executor, that an update of an executor carries, and of a message.
MAX_TASK_DATA: Final = 128 * 1024
MAX_UPDATE_DATA: Final = 64 * 1024
MAX_MESSAGE_DATA: Final = 64 * 1024
# Bytes of the name of an executor's update.
MAX_UPDATE_ID: Final = 16
# Rates of messages, in their cost a second, and what may come at once: of a framework to all of its
# executors, of all of these to it, and of one of them.
FRAMEWORK_MESSAGES: Final = (500.0, 1000.0)
ALL_EXECUTORS_MESSAGES: Final = (2000.0, 4000.0)
EXECUTOR_MESSAGES: Final = (200.0, 400.0)


@dataclass(frozen=True, slots=True)
class ExecutorSpec:
    """What makes a task an executor.

    Attributes:
        registration_timeout_ms: it is ended if it does not register in this time; 0: 60 s.
        shutdown_grace_ms: it is ended if it ignores a kill for so long after its grace; 0: 5 s.
        api: `OWN_API` or `MESOS_API`.
    """

    registration_timeout_ms: int = 0
    shutdown_grace_ms: int = 0
    api: str = OWN_API

    @property
    def registration_s(self) -> float:
        """The time to register, in seconds."""
        return (self.registration_timeout_ms or DEFAULT_REGISTRATION_MS) / 1000

    @property
    def shutdown_s(self) -> float:
        """The time after the grace of a kill that it ignores, in seconds."""
        return (self.shutdown_grace_ms or DEFAULT_SHUTDOWN_MS) / 1000

    def check(self) -> None:
        """Raise InvalidRequest if a time is out of range, or the API is unknown."""
        if not 0 <= self.registration_timeout_ms <= MAX_TIMEOUT_MS:
            raise InvalidRequest("an executor's time to register is at most 24 hours")
        if not 0 <= self.shutdown_grace_ms <= MAX_TIMEOUT_MS:
            raise InvalidRequest("an executor's shutdown grace is at most 24 hours")
        if self.api not in (OWN_API, MESOS_API):
            raise InvalidRequest(f"executor API {self.api[:80]!r}: leave it empty, or give 'mesos'")


def check_message(data: bytes) -> bytes:
    """Return the data of a message; raise InvalidRequest if they are too large."""
    if len(data) > MAX_MESSAGE_DATA:
        raise InvalidRequest(f"a message is larger than {MAX_MESSAGE_DATA} bytes")
    return data


def news_size(data: bytes, labels: Iterable[tuple[str, str]]) -> int:
    """Return about how many bytes the data and labels of an update take in a message."""
    return len(data) + sum(len(text.encode()) + 8 for label in labels for text in label)


def message_cost(data: bytes) -> float:
    """Return what a message counts for the rates below."""
    return 1 + len(data) / 4096
