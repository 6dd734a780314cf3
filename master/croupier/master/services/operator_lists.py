"""OperatorService: its lists, page by page."""

from __future__ import annotations

from croupier.master.access.caller import current_principal
from croupier.master.leadership.leadership import Leadership
from croupier.master.services import lists
from croupier.master.services.forecasts import Forecasts
from croupier.master.services.paging import Pages
from croupier.master.services.stream import Context
from croupier.master.services.views import WallTime
from croupier.model.clock import Clock
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import OperatorServiceServicer


class OperatorLists(OperatorServiceServicer):
    """Answers with pages of the lists in `lists.py`."""

    def __init__(self, leadership: Leadership, clock: Clock) -> None:
        """Answer for the current term."""
        self._leadership, self._clock = leadership, clock
        self._pages = Pages(leadership.read, clock)
        self._wall = WallTime(clock)
        self._forecasts = Forecasts(leadership, clock)

    async def ListAgents(
        self, request: pb.ListAgentsRequest, context: Context
    ) -> pb.ListAgentsResponse:
        """Return a page of the agents."""
        listed = lists.all_agents(request, self._wall, current_principal())
        found, token = await self._pages.page(listed, request)
        return pb.ListAgentsResponse(agents=found, next_page_token=token, now_ms=self._wall.now_ms)

    async def ListFrameworks(
        self, request: pb.ListFrameworksRequest, context: Context
    ) -> pb.ListFrameworksResponse:
        """Return a page of the frameworks."""
        listed = lists.all_frameworks(request, self._wall, current_principal())
        found, token = await self._pages.page(listed, request)
        now_ms = self._wall.now_ms
        return pb.ListFrameworksResponse(frameworks=found, next_page_token=token, now_ms=now_ms)

    async def ListRoles(
        self, request: pb.ListRolesRequest, context: Context
    ) -> pb.ListRolesResponse:
        """Return a page of the roles."""
        tasks = await lists.count_tasks(self._leadership.read)
        listed = lists.all_roles(request, tasks, current_principal())
        found, token = await self._pages.page(listed, request)
        return pb.ListRolesResponse(roles=found, next_page_token=token)

    async def ListOffers(
        self, request: pb.ListOffersRequest, context: Context
    ) -> pb.ListOffersResponse:
        """Return a page of the outstanding offers."""
        listed = lists.all_offers(request, self._wall, current_principal())
        found, token = await self._pages.page(listed, request)
        return pb.ListOffersResponse(offers=found, next_page_token=token)

    async def ListTasks(
        self, request: pb.ListTasksRequest, context: Context
    ) -> pb.ListTasksResponse:
        """Return a page of the tasks that pass the filters."""
        listed = lists.all_tasks(request, self._wall, current_principal())
        found, token = await self._pages.page(listed, request)
        if request.with_forecasts:
            await self._forecasts.add_to(found)
        return pb.ListTasksResponse(tasks=found, next_page_token=token, now_ms=self._wall.now_ms)

    async def ListHolds(
        self, request: pb.ListHoldsRequest, context: Context
    ) -> pb.ListHoldsResponse:
        """Return a page of the holds."""
        listed = lists.all_holds(request, self._wall, current_principal())
        found, token = await self._pages.page(listed, request)
        return pb.ListHoldsResponse(holds=found, next_page_token=token)

    async def ListReservations(
        self, request: pb.ListReservationsRequest, context: Context
    ) -> pb.ListReservationsResponse:
        """Return a page of the reservations."""
        listed = lists.all_reservations(request, current_principal())
        found, token = await self._pages.page(listed, request)
        return pb.ListReservationsResponse(reservations=found, next_page_token=token)
