"""The page of the master that leads, for callers of one that follows.

A follower knows the gRPC address of the leader, and by etcd the URL of its page. A leader of an
older release does not tell that by etcd: the follower asks it on behalf of the caller.
"""

from __future__ import annotations

from collections.abc import Callable
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
# A follower cannot check tokens, so anybody may make it ask: so many times at once, and from one
# address once in `UNKNOWN_S` without an answer.
MOST_ASKED: Final = 8
MOST_REFUSED: Final = 1_000


class LeaderPage:
    """Finds the URL of the leader's page."""

    def __init__(
        self,
        security: ClientSecurity,
        clock: Clock,
        page_of: Callable[[str], str] = lambda _: "",
    ) -> None:
        """Connect with the certificate in `security`, and the token of each caller.

        `page_of` returns the known URL of the page of the master at HOST:PORT, or nothing.
        """
        self._security, self._clock, self._page_of = security, clock, page_of
        self._leader = self._url = ""
        self._until = 0.0
        self._asked = 0
        # When an address may ask again.
        self._refused: dict[str, float] = {}

    async def find(self, request: web.Request, leader: str) -> str:
        """Return the URL of the page of the master at `leader`, HOST:PORT; empty if unknown."""
        if not leader:
            return ""
        if known := self._page_of(leader):
            return known
        if leader != self._leader:
            self._leader, self._url, self._until = leader, "", 0.0
            self._refused.clear()
        host, now = request.remote or "", self._clock.now()
        is_known = now < self._until or now < self._refused.get(host, 0.0)
        if is_known or self._asked >= MOST_ASKED:
            return self._url
        self._asked += 1
        try:
            url = await self._ask(request, leader)
        finally:
            self._asked -= 1
        if url and leader == self._leader:
            self._url, self._until = url, self._clock.now() + KNOWN_S
            self._refused.clear()
        elif not url:
            self._note_refused(host)
        return url or self._url

    def _note_refused(self, host: str) -> None:
        """Let an address ask no more for a while; the leader may refuse its token."""
        self._refused[host] = self._clock.now() + UNKNOWN_S
        if len(self._refused) > MOST_REFUSED:
            del self._refused[next(iter(self._refused))]

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
