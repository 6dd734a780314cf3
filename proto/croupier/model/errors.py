"""The error tree; every error that crosses a module border is one of these.

A broken invariant is an `assert`, not one of these.
"""

from __future__ import annotations


class CroupierError(Exception):
    """Base of all errors that a caller may want to handle."""


MAX_TEXT = 400


def shortened(error: CroupierError) -> CroupierError:
    """Return `error` to store: with at most 400 characters of text, and without its traceback.

    The text may quote a peer. The traceback would keep all objects of its frames alive.
    """
    text = str(error)
    kept = error if len(text) <= MAX_TEXT else type(error)(text[:MAX_TEXT] + "...")
    kept.__traceback__ = kept.__context__ = kept.__cause__ = None
    return kept


class InvalidRequest(CroupierError):
    """The request is invalid; it fails again unchanged."""


class NotFound(CroupierError):
    """The object does not exist, or belongs to another caller."""


class Conflict(CroupierError):
    """The request does not fit the current state, as with a stale offer."""


class Unauthenticated(CroupierError):
    """The call has no valid credential. Fatal for a framework."""


class PermissionDenied(CroupierError):
    """No rule allows the caller to do this."""


class Unavailable(CroupierError):
    """The request cannot be served now; it may succeed later."""


class NotLeader(Unavailable):
    """This master does not lead.

    Attributes:
        leader: HOST:PORT of the one that does; empty if it is not known.
    """

    def __init__(self, message: str, leader: str = "") -> None:
        super().__init__(message, leader)
        self.leader = leader

    def __str__(self) -> str:
        return str(self.args[0])


class FailedOver(CroupierError):
    """A newer session of the same framework or agent, or a newer master, has taken over. Fatal."""


class Removed(CroupierError):
    """The framework or agent was removed; its id is never used again. Fatal."""


class TooSlow(CroupierError):
    """The peer did not read its events in time and was disconnected."""


class ProtocolViolation(CroupierError):
    """The peer broke the rules of the stream, as by a first call that is not SUBSCRIBE."""
