"""The caller, and the master."""

from __future__ import annotations

from typing import Final

from croupier.api.masters import KnownMaster, MasterState, master_view
from croupier.api.objects import as_object
from croupier.api.pages import MasterPage
from croupier.api.policy import CallerAndActions
from croupier.master.web.table import ApiRoute, Asked
from croupier.model.access import Action
from croupier.v1 import access_pb2, operator_pb2


async def _who_am_i(asked: Asked) -> CallerAndActions:
    answer = await asked.ask("WhoAmI", access_pb2.WhoAmIRequest())
    known = asked.calls.permissions
    may = [each.value for each in Action if known is not None and known.allows_somewhere(each)]
    every = () if known is None else known.views_all
    return as_object(CallerAndActions, answer, may=may, views_all=[each.value for each in every])


async def _master(asked: Asked) -> MasterState:
    answer = await asked.ask("GetMaster", operator_pb2.GetMasterRequest())
    leader_http = "" if answer.leader else asked.page_of(answer.leader_address)
    return master_view(answer, leader_http)


async def _masters(asked: Asked) -> MasterPage:
    answer = await asked.ask("ListMasters", operator_pb2.ListMastersRequest())
    return {"items": [as_object(KnownMaster, each) for each in answer.masters], "next": None}


ROUTES: Final = (
    ApiRoute("/whoami", _who_am_i, "Return the caller and what it may do.", CallerAndActions),
    ApiRoute(
        "/master",
        _master,
        "Return the master, also one that follows, and the totals of the cluster.",
        MasterState,
    ),
    ApiRoute(
        "/masters",
        _masters,
        "List the known masters, the leader first; also a master that follows does.",
        MasterPage,
    ),
)
