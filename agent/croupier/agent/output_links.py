"""The guard of output: a link that the agent's master has signed, if the master requires links.

Rule: until a master has registered the agent, an agent that has credentials serves no output,
because it does not know the key yet. The key is never stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from croupier.model.clock import Clock
from croupier.model.errors import PermissionDenied, Unauthenticated, Unavailable
from croupier.net.output_links import KEY_BYTES, check_link
from croupier.v1.agent_pb2 import Registered

if TYPE_CHECKING:  # aiohttp
    from aiohttp import web


class OutputLinks:
    """The key of this agent's links, and whether output needs a link."""

    def __init__(self, clock: Clock, *, are_required: bool = False) -> None:
        """Begin without a key; `are_required` is a guess until a master decides."""
        self._clock = clock
        self._key = b""
        self.are_required = are_required

    def on_registered(self, registered: Registered) -> None:
        """Use the key of the master that has registered the agent."""
        self._key, self.are_required = registered.link_key, registered.requires_links

    async def check(self, request: web.Request) -> None:
        """Check the link of a request for output.

        Raises:
            Unauthenticated: if it has none.
            PermissionDenied: if it is not good for this request now.
            Unavailable: if no master has registered this agent yet.
        """
        if not self.are_required:
            return
        if len(self._key) != KEY_BYTES:
            raise Unavailable("no master has registered this agent yet; try again later")
        expires, signature = (request.query.getall(name, []) for name in ("expires", "signature"))
        if not expires and not signature:
            raise Unauthenticated(
                "output needs a link that the master has signed: croupier run asks for it, and"
                " OperatorService.GetOutputLinks returns it"
            )
        if len(expires) != 1 or len(signature) != 1:
            raise PermissionDenied("a link has one time of expiry and one signature")
        check_link(self._key, request.path, expires[0], signature[0], self._clock.wall_ms() / 1000)
