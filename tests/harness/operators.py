"""Scripted services for operators: real gRPC on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import grpc

from croupier.model.errors import CroupierError
from croupier.net.address import Address
from croupier.net.errors import STATUS
from croupier.net.transport import bind, make_server
from croupier.v1 import access_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.v1.access_pb2_grpc import AccessServiceServicer, add_AccessServiceServicer_to_server
from croupier.v1.operator_pb2_grpc import (
    OperatorServiceServicer,
    add_OperatorServiceServicer_to_server,
)

T = TypeVar("T")
Context = grpc.aio.ServicerContext[Any, Any]


def answering(kind: type[Any]) -> Any:
    """Return a method that answers with a message of this kind."""

    async def answer(operator: ScriptedOperator, request: Any, context: Context) -> Any:
        return await operator._answer(request, context, kind)

    return answer


class ScriptedOperator(OperatorServiceServicer, AccessServiceServicer):
    """An operator service, and an access service, with fixed answers.

    Attributes:
        answers: the answer to each type of request. An error is raised, a list is returned in
            pages, and a missing answer is an empty message.
        asked: the requests.
        hangs: if set, no request is answered.
    """

    def __init__(self) -> None:
        self.answers: dict[type, Any] = {
            pb.GetMasterRequest: pb.GetMasterResponse(master_id="m1", leader=True),
            access_pb2.CheckAccessRequest: access_pb2.CheckAccessResponse(allowed=True),
        }
        self.asked: list[Any] = []
        self.hangs = False
        self.address = ""

    GetMaster = answering(pb.GetMasterResponse)
    GetOverview = answering(pb.GetOverviewResponse)
    GetUsage = answering(pb.GetUsageResponse)
    ListMasters = answering(pb.ListMastersResponse)
    ListAgents = answering(pb.ListAgentsResponse)
    ListFrameworks = answering(pb.ListFrameworksResponse)
    ListRoles = answering(pb.ListRolesResponse)
    ListOffers = answering(pb.ListOffersResponse)
    ListTasks = answering(pb.ListTasksResponse)
    ListHolds = answering(pb.ListHoldsResponse)
    CreateHold = answering(pb.CreateHoldResponse)
    ReleaseHold = answering(pb.ReleaseHoldResponse)
    ListReservations = answering(pb.ListReservationsResponse)
    CreateReservation = answering(pb.CreateReservationResponse)
    DeleteReservation = answering(pb.DeleteReservationResponse)
    KillTask = answering(pb.KillTaskResponse)
    UpdateRoles = answering(pb.UpdateRolesResponse)
    DrainAgent = answering(pb.DrainAgentResponse)
    DeactivateAgent = answering(pb.DeactivateAgentResponse)
    ReactivateAgent = answering(pb.ReactivateAgentResponse)
    MarkAgentGone = answering(pb.MarkAgentGoneResponse)
    TeardownFramework = answering(pb.TeardownFrameworkResponse)
    Explain = answering(pb.ExplainResponse)
    Fit = answering(pb.FitResponse)
    GetOutputLinks = answering(pb.GetOutputLinksResponse)
    ListTaskFiles = answering(pb.ListTaskFilesResponse)

    WhoAmI = answering(access_pb2.WhoAmIResponse)
    CheckAccess = answering(access_pb2.CheckAccessResponse)
    GetPolicy = answering(access_pb2.GetPolicyResponse)
    UpdatePolicy = answering(access_pb2.UpdatePolicyResponse)
    ListTokens = answering(access_pb2.ListTokensResponse)
    RevokeToken = answering(access_pb2.RevokeTokenResponse)

    async def ReadTaskFile(
        self, request: Any, context: Context
    ) -> AsyncIterator[pb.ReadTaskFileResponse]:
        yield await self._answer(request, context, pb.ReadTaskFileResponse)

    async def _answer(self, request: Any, context: Context, kind: type[T]) -> T:
        self.asked.append(request)
        if self.hangs:
            await asyncio.Event().wait()
        answer = self.answers.get(type(request), kind())
        if isinstance(answer, CroupierError):
            await context.abort(STATUS[type(answer)], str(answer))
        if isinstance(answer, list):
            answer = _page(answer, request.page_token)
        assert isinstance(answer, kind)
        return answer


def _page(answers: list[Any], token: str) -> Any:
    at = int(token or "0")
    page = type(answers[at])()
    page.CopyFrom(answers[at])
    page.next_page_token = str(at + 1) if at + 1 < len(answers) else ""
    return page


@asynccontextmanager
async def serving(operator: ScriptedOperator) -> AsyncIterator[ScriptedOperator]:
    """Serve `operator` at its `address`."""
    server = make_server()
    add_OperatorServiceServicer_to_server(operator, server)
    add_AccessServiceServicer_to_server(operator, server)
    operator.address = f"127.0.0.1:{bind(server, Address('127.0.0.1', 0))}"
    await server.start()
    try:
        yield operator
    finally:
        await server.stop(None)
