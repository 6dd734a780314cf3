"""Tokens, as commands show them: without secrets."""

from __future__ import annotations

from datetime import UTC, datetime

from croupier.ctl.table import Column, Table, text
from croupier.ctl.views.amounts import View
from croupier.v1 import access_pb2 as pb

_KINDS = {pb.TOKEN_KIND_CLIENT: "client", pb.TOKEN_KIND_JOIN: "join", pb.TOKEN_KIND_AGENT: "agent"}


def token_view(token: pb.Token) -> View:
    """Return one token; `expires` None is never, `uses_left` None is any number."""
    return {
        "token_id": token.token_id,
        "kind": _KINDS.get(token.kind, str(token.kind)),
        "principal": token.principal,
        "expires": time_text(token.expires_ms) if token.HasField("expires_ms") else None,
        "created": time_text(token.created_ms),
        "created_by": token.created_by,
        "uses_left": token.uses_left if token.HasField("uses_left") else None,
        "attributes": list(token.attributes),
        "description": token.description,
    }


def time_text(time_ms: int) -> str:
    """Return a time, in milliseconds since the epoch, as UTC; empty if it is out of range."""
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return ""


def scope_text(token: View) -> str:
    """Return the holder of the token: a principal, or the agents that may join with it."""
    if token["kind"] != "join":
        return str(token["principal"])
    uses = token["uses_left"]
    number = "any number of agents" if uses is None else f"{uses} more agent{'s'[: uses != 1]}"
    return ", ".join((number, *token["attributes"]))


TOKENS = Table(
    (
        text("id", "token_id", is_id=True),
        text("kind", "kind"),
        Column("for", scope_text),
        Column("expires", lambda view: view["expires"] or "never"),
        text("created", "created", 2),
        text("created by", "created_by", 1),
        text("description", "description", 1),
    ),
    "no tokens",
)
