"""Redirection of callers to the leader."""

from __future__ import annotations

from croupier.master.access.caller import Caller
from croupier.model.errors import NotLeader, Unavailable


def as_redirected(refusal: Unavailable, caller: Caller) -> Unavailable:
    """Return `refusal` without the leader's address if the caller cannot use that.

    The address is that of the listener that requires certificates. A caller that came to the
    listener for tokens tries the masters that it knows.
    """
    if isinstance(refusal, NotLeader) and not caller.is_redirected:
        return NotLeader(
            "not the leader; try the other masters: a caller with a token must list the token"
            " ports of all"
        )
    return refusal
