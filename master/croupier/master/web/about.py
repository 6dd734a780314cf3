"""The caller, and the master."""

from __future__ import annotations

from typing import Final

from croupier.api import http_pb2 as http
from croupier.master.web.table import ApiRoute, Asked
from croupier.model.access import Action
from croupier.v1 import access_pb2
from croupier.v1 import operator_pb2 as pb


async def _who_am_i(asked: Asked) -> http.CallerAndActions:
    answer = await asked.ask("WhoAmI", access_pb2.WhoAmIRequest())
    known = asked.calls.permissions
    may = [each.value for each in Action if known is not None and known.allows_somewhere(each)]
    every = () if known is None else known.views_all
    return http.CallerAndActions(caller=answer, may=may, views_all=[each.value for each in every])


async def _master(asked: Asked) -> http.MasterState:
    answer = await asked.ask("GetMaster", pb.GetMasterRequest())
    leader_http = answer.http_address if answer.leader else asked.page_of(answer.leader_address)
    return http.MasterState(master=answer, leader_http=leader_http)


async def _masters(asked: Asked) -> pb.ListMastersResponse:
    found: pb.ListMastersResponse = await asked.ask("ListMasters", pb.ListMastersRequest())
    return found


ROUTES: Final = (
    ApiRoute("/whoami", _who_am_i, "Return the caller and what it may do.", http.CallerAndActions),
    ApiRoute(
        "/master",
        _master,
        "Return the master, also one that follows, and the totals of the cluster.",
        http.MasterState,
    ),
    ApiRoute(
        "/masters",
        _masters,
        "List the known masters, the leader first; also a master that follows does.",
        pb.ListMastersResponse,
    ),
)
