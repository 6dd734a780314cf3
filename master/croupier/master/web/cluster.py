"""The caller, the masters, and the cluster at a glance: totals, map, last hour, room, usage."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from croupier.api import http_pb2 as http
from croupier.api.forms import STRING, USAGE_BY, array
from croupier.api.objects import as_object
from croupier.master.web.answers import encoded
from croupier.master.web.table import ApiRoute, Asked, Parameter, call_route, integer, word
from croupier.model.access import Action
from croupier.model.attributes import parse_constraint
from croupier.model.resources import Resources
from croupier.v1 import access_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.wire.resources import constraint_to_wire, resources_to_wire


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


async def _heatmap(asked: Asked) -> bytes:
    view = as_object(await asked.ask("GetHeatmap", pb.GetHeatmapRequest()))
    used = await _members(view["used"])
    rest = await _members({name: value for name, value in view.items() if name != "used"})
    return b'{%b,"used":{%b}}' % (rest, used)


async def _members(values: dict[str, object]) -> bytes:
    """Return the members of an object as JSON; each is about a millisecond of work."""
    made = []
    for name, value in values.items():
        made.append(b"%b:%b" % (encoded(name), encoded(value)))
        await asyncio.sleep(0)
    return b",".join(made)


async def _fit(asked: Asked) -> Any:
    query = asked.query
    request = pb.FitRequest(
        unit=resources_to_wire(query["unit"]),
        constraints=map(constraint_to_wire, query["constraint"]),
        role=query["role"],
    )
    return await asked.ask("Fit", request)


_FIT: Final = (
    Parameter(
        "unit",
        "resources of one task, such as `cpus:8;mem:64GB;gpus:1`",
        read=Resources.parse,
        default=Resources.parse("cpus:1;mem:128MB"),
    ),
    Parameter(
        "constraint",
        "only agents that pass it, such as `rack equals r1`",
        array(STRING),
        parse_constraint,
        (),
        is_list=True,
        has_commas=True,
    ),
    Parameter("role", "the role of the tasks, whose limits and holds count"),
)


async def _usage(asked: Asked) -> Any:
    return await asked.ask("GetUsage", pb.GetUsageRequest(**asked.query))


# In the year 2286.
_LAST_MS: Final = 9_999_999_999_999
_USAGE: Final = (
    word("by", "sum by this word", USAGE_BY, "role"),
    integer("since_ms", "start of the time, in milliseconds since the epoch", 0, _LAST_MS, 0),
    integer("until_ms", "its end; 0: now", 0, _LAST_MS, 0),
)

ROUTES: Final = (
    ApiRoute("/whoami", _who_am_i, "Return the caller and what it may do.", http.CallerAndActions),
    ApiRoute(
        "/master",
        _master,
        "Return the master, also one that follows, and the totals of the cluster.",
        http.MasterState,
    ),
    call_route(
        "/masters",
        "ListMasters",
        "List the known masters, the leader first; also a master that follows does.",
    ),
    call_route(
        "/overview",
        "GetOverview",
        "Return the totals of the cluster, and numbers of objects by state.",
        is_shared=True,
    ),
    ApiRoute(
        "/heatmap",
        _heatmap,
        "Return the state and the load of every agent, in columns.",
        pb.GetHeatmapResponse,
        is_shared=True,
    ),
    ApiRoute(
        "/fit",
        _fit,
        "Count how many tasks of a shape could start now, and find what would have to end for one"
        " more.",
        pb.FitResponse,
        _FIT,
    ),
    call_route(
        "/history",
        "GetHistory",
        "Return the use of resources and the shares of roles in the last hour.",
        is_shared=True,
    ),
    ApiRoute(
        "/usage",
        _usage,
        "Return what tasks used, what holds kept idle, and what was offered, summed over a time.",
        pb.GetUsageResponse,
        _USAGE,
        is_shared=True,
    ),
)
