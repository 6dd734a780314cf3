"""Changes of roles: weights, guarantees, limits, preemption."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from croupier.api import http_pb2 as http
from croupier.api.shapes import PARTS_OF_ROLE, PREEMPTION
from croupier.master.web.table import ApiRoute, Asked
from croupier.model.errors import InvalidRequest
from croupier.model.roles import RoleSettings, parse_amounts, parse_weight
from croupier.v1 import operator_pb2 as pb
from croupier.wire.roles import settings_to_wire


def change_of(change: Mapping[str, Any]) -> pb.RoleChange:
    """Return the message of a change in JSON, which has the form of `RoleChange`.

    Raises:
        InvalidRequest: if it changes nothing, or a setting is malformed.
    """
    role, reset = change["role"], change.get("reset")
    parts = [number for name, number in PARTS_OF_ROLE.items() if name in change]
    if reset is not None:
        if parts or not reset:
            raise InvalidRequest(f"role {role[:80]!r}: reset names settings, and stands alone")
        return pb.RoleChange(role=role, parts=sorted({PARTS_OF_ROLE[name] for name in reset}))
    if not parts:
        raise InvalidRequest(
            f"role {role[:80]!r}: name a setting: {', '.join(PARTS_OF_ROLE)}, or reset"
        )
    weights = change.get("resource_weights", {})
    settings = RoleSettings(
        _weight(f"the weight of {role[:80]}", change.get("weight", 1)),
        {name: _weight(f"the weight of {name[:80]}", each) for name, each in weights.items()},
        parse_amounts(change.get("guarantee", "")),
        parse_amounts(change.get("limit", "")),
        PREEMPTION[change.get("preemption", "inherit")],
    )
    settings.check()
    return pb.RoleChange(role=role, settings=settings_to_wire(settings), parts=parts)


def _weight(what: str, number: float) -> int:
    return parse_weight(what, f"{number}")


async def _change(asked: Asked) -> Any:
    body = asked.body
    request = pb.UpdateRolesRequest(
        changes=[change_of(each) for each in body["changes"]],
        dry_run=body.get("dry_run", False),
        force=body.get("force", False),
    )
    return await asked.ask("UpdateRoles", request)


ROUTES: Final = (
    ApiRoute(
        "/roles",
        _change,
        "Change settings of roles: all of them, or none.",
        pb.UpdateRolesResponse,
        method="POST",
        body=http.RolesRequest,
    ),
)
