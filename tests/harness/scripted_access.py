"""A scripted access service, which notes new tokens, and a command in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from croupier.ctl.__main__ import main
from croupier.model.errors import CroupierError
from croupier.net.address import Address
from croupier.net.errors import STATUS
from croupier.net.transport import bind, make_server
from croupier.v1 import access_pb2 as pb
from croupier.v1.access_pb2_grpc import AccessServiceServicer, add_AccessServiceServicer_to_server
from croupier.v1.operator_pb2_grpc import add_OperatorServiceServicer_to_server
from tests.harness.certificates import PemFiles
from tests.harness.operators import ScriptedOperator

Context = grpc.aio.ServicerContext[Any, Any]


class ScriptedAccess(AccessServiceServicer):
    """An access service.

    Attributes:
        error: the answer to every call, if there is one.
        created: the requests that created tokens.
        policy: the groups and rules; changes add members.
        authorizations: what each call carried.
    """

    def __init__(self) -> None:
        self.error: CroupierError | None = None
        self.caller = pb.WhoAmIResponse(
            principal="client/alice", groups=["operator"], credential="token", is_auth_on=True
        )
        self.check = pb.CheckAccessResponse()
        self.created: list[pb.CreateTokenRequest] = []
        self.policy = pb.GetPolicyResponse(groups=[pb.Group(name="operator", is_builtin=True)])
        self.authorizations: list[str] = []
        self.operator = ScriptedOperator()

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return self.operator.address

    async def WhoAmI(self, request: Any, context: Context) -> pb.WhoAmIResponse:  # noqa: N802
        await self._begin(context)
        return self.caller

    async def CheckAccess(self, request: Any, context: Context) -> pb.CheckAccessResponse:  # noqa: N802
        await self._begin(context)
        return self.check

    async def GetPolicy(self, request: Any, context: Context) -> pb.GetPolicyResponse:  # noqa: N802
        await self._begin(context)
        return self.policy

    async def UpdatePolicy(self, request: Any, context: Context) -> pb.UpdatePolicyResponse:  # noqa: N802
        await self._begin(context)
        for change in request.changes:
            named = change.add_member
            (group,) = (each for each in self.policy.groups if each.name == named.group)
            group.members.append(named.member)
        return pb.UpdatePolicyResponse(policy=self.policy)

    async def CreateToken(self, request: Any, context: Context) -> pb.CreateTokenResponse:  # noqa: N802
        await self._begin(context)
        self.created.append(request)
        return pb.CreateTokenResponse(token=request.token)

    async def _begin(self, context: Context) -> None:
        sent: Any = dict(context.invocation_metadata() or ())
        self.authorizations.append(sent.get("authorization", ""))
        if self.error is not None:
            await context.abort(STATUS[type(self.error)], str(self.error))


@asynccontextmanager
async def serving_access(tls: PemFiles | None = None) -> AsyncIterator[ScriptedAccess]:
    """Serve an access service beside a scripted operator service; with `tls` by mutual TLS."""
    access, server = ScriptedAccess(), make_server()
    credentials = None
    if tls is not None:
        pair = tls.key.read_bytes(), tls.cert.read_bytes()
        credentials = grpc.ssl_server_credentials([pair], tls.ca.read_bytes(), True)
    add_AccessServiceServicer_to_server(access, server)
    add_OperatorServiceServicer_to_server(access.operator, server)
    access.operator.address = f"127.0.0.1:{bind(server, Address('127.0.0.1', 0), credentials)}"
    await server.start()
    try:
        yield access
    finally:
        await server.stop(None)


async def command(access: ScriptedAccess, *words: str) -> int:
    """Run a command in this process against the service; return its exit code."""
    return await asyncio.to_thread(main, [*words, "--master", access.address])
