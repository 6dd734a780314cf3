"""Callers: the principal and the credential of each call.

The interceptor sets the current call in a context variable. A handler and the tasks that it
starts see the same call. Without an interceptor, as in a framework's tests, callers are anonymous.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from croupier.model.errors import CroupierError, NotLeader
from croupier.model.principal import ANONYMOUS, Principal


class CredentialKind(Enum):
    """Kinds of credentials.

    JOIN is a token that gives no principal: it lets an agent get a token of its own. UNCHECKED is
    a token that came to a follower, which cannot check it.
    """

    NONE = ""
    CERTIFICATE = "certificate"
    TOKEN = "token"  # noqa: S105 - no password
    JOIN = "join-token"
    OIDC = "oidc"
    UNCHECKED = "unchecked"


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a call.

    Attributes:
        principal: ANONYMOUS while authentication is off, and for JOIN and UNCHECKED.
        credential_id: the token's id, or the id of the certificate's key; no secret.
        expires_ms: when the credential expires, in milliseconds since the epoch; None if never.
        host: the address that the call comes from, without the port.
        is_redirected: whether the address that masters advertise is one that the caller can use.
        is_stored: False for an UNCHECKED token that the store of the cluster does not have; it may
            be the admin's token of another master.
    """

    principal: Principal = ANONYMOUS
    kind: CredentialKind = CredentialKind.NONE
    credential_id: str = ""
    expires_ms: int | None = None
    host: str = ""
    is_redirected: bool = True
    is_stored: bool = True

    @property
    def rate_key(self) -> str:
        """The name under which calls are counted: the principal, or else the address."""
        return self.principal.name or self.host

    @property
    def is_token(self) -> bool:
        """Whether the credential is a token that the master stores."""
        return self.kind in (CredentialKind.TOKEN, CredentialKind.JOIN)

    def is_expired(self, now_ms: int) -> bool:
        """Return whether the credential has expired; `now_ms`: milliseconds since the epoch."""
        return self.expires_ms is not None and self.expires_ms <= now_ms

    def redirected(self, error: CroupierError) -> CroupierError:
        """Return `error` without the leader's address if the caller cannot use that.

        The address is that of the listener that requires certificates. A caller that came to the
        listener for tokens tries the masters that it knows.
        """
        if isinstance(error, NotLeader) and not self.is_redirected:
            return NotLeader(
                "not the leader; try the other masters: a caller with a token must list the token"
                " ports of all"
            )
        return error


UNKNOWN_CALLER: Final = Caller()


@dataclass(slots=True, eq=False)
class Call:
    """A call in progress.

    Attributes:
        method: its full name, such as `/croupier.v1.OperatorService/KillTask`.
        size: bytes of the request.
        object: what the call is about, for the audit log.
        detail: more about it, for the audit log.
        rule: the rule that allowed it; empty if none was needed or none allows it.
        read_s: seconds for which it has read the state so far, while everything else waited.
        is_routine: whether it is one of many in normal operation: only an audit file has its line.
    """

    method: str = ""
    caller: Caller = field(default_factory=Caller)
    size: int = 0
    object: str = ""
    detail: str = ""
    rule: str = ""
    read_s: float = 0.0
    is_routine: bool = False


_current: ContextVar[Call] = ContextVar("croupier_call")


def begin_call(call: Call) -> None:
    """Make `call` the current one of this task, and of tasks that it starts."""
    _current.set(call)


def current_call() -> Call:
    """Return the current call; one of an anonymous caller if there is none."""
    found = _current.get(None)
    return Call() if found is None else found


def current_caller() -> Caller:
    """Return the caller of the current call."""
    return current_call().caller


def current_principal() -> Principal:
    """Return the principal of the current call."""
    return current_caller().principal
