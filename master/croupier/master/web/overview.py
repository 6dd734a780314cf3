"""The cluster at a glance: totals, the map of agents, the last hour."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from croupier.api.objects import as_object
from croupier.master.web.answers import encoded
from croupier.master.web.table import ApiRoute, Asked
from croupier.v1 import operator_pb2 as pb

SHARED_S: Final = 1.0


async def _overview(asked: Asked) -> Any:
    return await asked.ask("GetOverview", pb.GetOverviewRequest())


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


async def _history(asked: Asked) -> Any:
    return await asked.ask("GetHistory", pb.GetHistoryRequest())


ROUTES: Final = (
    ApiRoute(
        "/overview",
        _overview,
        "Return the totals of the cluster, and numbers of objects by state.",
        pb.GetOverviewResponse,
        shared_s=SHARED_S,
    ),
    ApiRoute(
        "/heatmap",
        _heatmap,
        "Return the state and the load of every agent, in columns.",
        pb.GetHeatmapResponse,
        shared_s=SHARED_S,
    ),
    ApiRoute(
        "/history",
        _history,
        "Return the use of resources and the shares of roles in the last hour.",
        pb.GetHistoryResponse,
        shared_s=SHARED_S,
    ),
)
