"""Calls of a local cluster to its master."""

from __future__ import annotations

from croupier.cli.connection import connected
from croupier.cli.flags import Target
from croupier.cli.terminal import View
from croupier.ctl.lists import all_of
from croupier.ctl.views.isolation import default_user_text, levels_text
from croupier.model.errors import CroupierError, Unavailable
from croupier.model.token import BearerToken
from croupier.v1 import access_pb2 as pb


async def admits(target: Target, join: BearerToken) -> bool:
    """Store the token to join by; False without an answer. Raises CroupierError if refused."""
    token = pb.Token(
        token_id=join.token_id, kind=pb.TOKEN_KIND_JOIN, description="agents of croupier local"
    )
    request = pb.CreateTokenRequest(token=token, token_hash=join.hash)
    try:
        async with connected(target) as master:
            await master.ask(master.access.CreateToken, request)
    except Unavailable:
        return False
    return True


async def connected_agents(target: Target) -> dict[str, str]:
    """Return, by hostname, the isolation of connected agents in words; none without an answer."""
    try:
        async with connected(target) as master:
            known = await all_of(master, "agents")
    except CroupierError:
        return {}
    return {
        each["hostname"]: _isolation_text(each) for each in known if each["state"] == "connected"
    }


def _isolation_text(agent: View) -> str:
    levels, user = levels_text(agent["isolation"]), default_user_text(agent["default_user"])
    return f"{levels}; tasks run as {user}"
