"""A scripted access service, which keeps tokens and a policy, and a command in a thread."""

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
        policy: the groups and rules; changes add rules and members, and remove rules.
        authorizations: what each call carried.
    """

    def __init__(self) -> None:
        self.error: CroupierError | None = None
        self.caller = pb.WhoAmIResponse(
            principal="client/alice", groups=["operator"], credential="token", is_auth_on=True
        )
        self.check = pb.CheckAccessResponse()
        self.created: list[pb.CreateTokenRequest] = []
        self.tokens: dict[str, pb.Token] = {}
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
        policy = pb.GetPolicyResponse()
        policy.CopyFrom(self.policy)
        for change in request.changes:
            _apply(policy, change)
        if not request.dry_run:
            self.policy = policy
        return pb.UpdatePolicyResponse(policy=policy, dry_run=request.dry_run)

    async def ListTokens(self, request: Any, context: Context) -> pb.ListTokensResponse:  # noqa: N802
        await self._begin(context)
        ids = sorted(self.tokens)
        at = int(request.page_token or "0")
        more = str(at + 1) if at + 1 < len(ids) else ""
        page = [self.tokens[each] for each in ids[at : at + 1]]
        return pb.ListTokensResponse(tokens=page, next_page_token=more)

    async def CreateToken(self, request: Any, context: Context) -> pb.CreateTokenResponse:  # noqa: N802
        await self._begin(context)
        self.created.append(request)
        self.tokens[request.token.token_id] = request.token
        return pb.CreateTokenResponse(token=request.token)

    async def RevokeToken(self, request: Any, context: Context) -> pb.RevokeTokenResponse:  # noqa: N802
        await self._begin(context)
        return pb.RevokeTokenResponse(token=self.tokens.pop(request.token_id))

    async def _begin(self, context: Context) -> None:
        sent: Any = dict(context.invocation_metadata() or ())
        self.authorizations.append(sent.get("authorization", ""))
        if self.error is not None:
            await context.abort(STATUS[type(self.error)], str(self.error))


def _apply(policy: pb.GetPolicyResponse, change: pb.PolicyChange) -> None:
    match change.WhichOneof("change"):
        case "set_group":
            policy.groups.append(change.set_group)
        case "set_rule":
            policy.rules.append(change.set_rule)
        case "remove_rule":
            kept = [rule for rule in policy.rules if rule.name != change.remove_rule]
            del policy.rules[:]
            policy.rules.extend(kept)
        case "add_member":
            (group,) = (each for each in policy.groups if each.name == change.add_member.group)
            group.members.append(change.add_member.member)
        case "remove_member":
            (group,) = (each for each in policy.groups if each.name == change.remove_member.group)
            group.members.remove(change.remove_member.member)


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
