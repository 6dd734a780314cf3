"""Tokens, as commands show them: without secrets."""

from __future__ import annotations

from croupier.cli.amounts import View
from croupier.cli.table import Column, Table, text


def scope_text(token: View) -> str:
    """Return the holder of the token: a principal, or the agents that may join with it."""
    if token["kind"] != "join":
        return str(token["principal"])
    uses = token["uses_left"]
    number = "any number of agents" if uses is None else f"{uses} more agent{'s'[: uses != 1]}"
    most = token["max_resources"]["text"]
    return ", ".join((number, *token["attributes"], *([f"at most {most}"] if most else ())))


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
