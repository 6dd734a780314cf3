"""The tree of errors; every error that crosses a module border is one of these.

    CroupierError
    |-- InvalidRequest    the caller's fault: the same request fails again
    |-- NotFound          no such thing, or not the caller's
    |-- Conflict          the world has moved on, as with a stale offer
    |-- Unavailable       try again later
    |   `-- NotLeader     ask the master that leads
    |-- FailedOver        a newer session of the same id has taken over
    |-- Removed           the framework or agent was removed for good
    |-- TooSlow           the peer did not read in time and was cut off
    `-- ProtocolViolation the stream broke its own rules

A broken invariant is an `assert`, not one of these.
"""

from __future__ import annotations


class CroupierError(Exception):
    """Anything that can go wrong in a way a caller may want to handle."""


MAX_TEXT = 400


def shortened(error: CroupierError) -> CroupierError:
    """`error` as it may be kept: at most 400 characters of text, which may quote a peer.

    Neither does it hold on to the frames that it was raised in, with all that these refer to.
    """
    text = str(error)
    kept = error if len(text) <= MAX_TEXT else type(error)(text[:MAX_TEXT] + "...")
    kept.__traceback__ = kept.__context__ = kept.__cause__ = None
    return kept


class InvalidRequest(CroupierError):
    """The request can never succeed as it is."""


class NotFound(CroupierError):
    """There is no such thing, or it belongs to somebody else."""


class Conflict(CroupierError):
    """The request was right once; the state has changed since."""


class Unavailable(CroupierError):
    """Not now; the same request may succeed later."""


class NotLeader(Unavailable):
    """This master does not lead.

    Attributes:
        leader: HOST:PORT of the one that does; empty if it is not known.
    """

    def __init__(self, message: str, leader: str = "") -> None:
        """Say so, and who does."""
        super().__init__(message, leader)
        self.leader = leader

    def __str__(self) -> str:
        return str(self.args[0])


class FailedOver(CroupierError):
    """A newer session of the same framework or agent, or a newer master, has taken over. Fatal."""


class Removed(CroupierError):
    """The framework or agent was removed; its id is never used again. Fatal."""


class TooSlow(CroupierError):
    """The peer left its events unread for too long and was disconnected."""


class ProtocolViolation(CroupierError):
    """The peer broke the rules of the stream, as by a first call that is not SUBSCRIBE."""
