"""The page of the master that leads, for callers of one that follows.

A follower knows the gRPC address of the leader, and asks it for the URL of its page on behalf of
the caller.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import grpc
from aiohttp import web

from croupier.model.clock import Clock
from croupier.model.errors import CroupierError
from croupier.net.address import Address
from croupier.net.credentials import ClientSecurity
from croupier.net.transport import make_channel
from croupier.process.http.credentials import bearer_of
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import OperatorServiceStub

ANSWER_S: Final = 2.0
# A leader's URL stays the same; one that gave no answer is asked again soon.
KNOWN_S: Final = 30.0
UNKNOWN_S: Final = 1.0


class LeaderPage:
    """Finds the URL of the leader's page."""

    def __init__(self, security: ClientSecurity, clock: Clock) -> None:
        """Connect with the certificate in `security`, and the token of each caller."""
        self._security, self._clock = security, clock
        self._leader = self._url = ""
        self._until = 0.0

    async def find(self, request: web.Request, leader: str) -> str:
        """Return the URL of the page of the master at `leader`, HOST:PORT; empty if unknown."""
        if not leader:
            return ""
        if leader != self._leader or self._clock.now() >= self._until:
            url = await self._ask(request, leader)
            self._leader, self._url = leader, url
            self._until = self._clock.now() + (KNOWN_S if url else UNKNOWN_S)
        return self._url

    async def _ask(self, request: web.Request, leader: str) -> str:
        try:
            token = bearer_of(request) or ""
            channel = make_channel(Address.parse(leader), replace(self._security, token=token))
        except CroupierError:
            return ""
        try:
            ask = OperatorServiceStub(channel).GetMaster
            answer = await ask(pb.GetMasterRequest(), timeout=ANSWER_S)
        except grpc.RpcError:
            return ""
        finally:
            await channel.close()
        return str(answer.http_address)
