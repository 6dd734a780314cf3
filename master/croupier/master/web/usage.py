"""Usage over time."""

from __future__ import annotations

from typing import Any, Final

from croupier.master.web.table import ApiRoute, Asked, integer, word
from croupier.v1 import operator_pb2 as pb

_BY: Final = {
    "role": pb.USAGE_BY_ROLE,
    "framework": pb.USAGE_BY_FRAMEWORK,
    "principal": pb.USAGE_BY_PRINCIPAL,
    "label": pb.USAGE_BY_LABEL,
}
# In the year 2286.
_LAST_MS: Final = 9_999_999_999_999


async def _usage(asked: Asked) -> Any:
    query = asked.query
    request = pb.GetUsageRequest(**query)
    return await asked.ask("GetUsage", request)


ROUTES: Final = (
    ApiRoute(
        "/usage",
        _usage,
        "Return what tasks used, what holds kept idle, and what was offered, summed over a time.",
        pb.GetUsageResponse,
        (
            word("by", "sum by this word", _BY, "role"),
            integer(
                "since_ms", "start of the time, in milliseconds since the epoch", 0, _LAST_MS, 0
            ),
            integer("until_ms", "its end; 0: now", 0, _LAST_MS, 0),
        ),
        is_shared=True,
    ),
)
