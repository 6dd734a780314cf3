"""Tokens: without secrets."""

from __future__ import annotations

from typing import TypedDict

from croupier.api.amounts import Amount, amount_view
from croupier.api.times import time_text
from croupier.v1 import access_pb2 as pb

_KINDS = {pb.TOKEN_KIND_CLIENT: "client", pb.TOKEN_KIND_JOIN: "join", pb.TOKEN_KIND_AGENT: "agent"}


class Token(TypedDict):
    """A token.

    Attributes:
        expires: in UTC; None: never.
        created: in UTC.
        uses_left: None is any number.
        attributes: what an agent that joins with it must have.
        max_resources: the most that such an agent may have of what is named.
    """

    token_id: str
    kind: str
    principal: str
    expires: str | None
    created: str
    created_by: str
    uses_left: int | None
    attributes: list[str]
    max_resources: Amount
    description: str


def token_view(token: pb.Token) -> Token:
    """Return one token."""
    return {
        "token_id": token.token_id,
        "kind": _KINDS.get(token.kind, str(token.kind)),
        "principal": token.principal,
        "expires": time_text(token.expires_ms) if token.HasField("expires_ms") else None,
        "created": time_text(token.created_ms),
        "created_by": token.created_by,
        "uses_left": token.uses_left if token.HasField("uses_left") else None,
        "attributes": list(token.attributes),
        "max_resources": amount_view(token.max_resources),
        "description": token.description,
    }
