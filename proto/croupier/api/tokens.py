"""Tokens: without secrets."""

from __future__ import annotations

from typing import TypedDict

from croupier.api.amounts import Amount
from croupier.api.objects import as_object
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
    return as_object(Token, token, kind=_KINDS.get(token.kind, str(token.kind)))
