"""Requests of operators, from protobuf."""

from __future__ import annotations

from collections.abc import Sequence

from croupier.master.core.agent_commands import Drain
from croupier.master.core.roles import MAX_CHANGES, RoleChange, RolePart
from croupier.model.demand import Demand
from croupier.model.errors import InvalidRequest, shortened
from croupier.model.ids import check_role
from croupier.v1 import framework_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.wire.resources import check_count
from croupier.wire.roles import settings_from_wire
from croupier.wire.task import demands_from_wire

_PARTS = {pb.RoleChange.Part.Value(f"PART_{part.name}"): part for part in RolePart}


def changes_from_wire(wire: Sequence[pb.RoleChange]) -> tuple[RoleChange, ...]:
    """Convert changes of roles; raises InvalidRequest if one is malformed, or they are too many."""
    if len(wire) > MAX_CHANGES:
        raise InvalidRequest(f"more than {MAX_CHANGES} roles cannot be changed at once")
    return tuple(map(_change, wire))


def drain_from_wire(wire: pb.DrainAgentRequest) -> Drain:
    """Convert a drain; the core checks its grace period."""
    return Drain(wire.grace_ms if wire.HasField("grace_ms") else None)


def fit_from_wire(wire: pb.FitRequest) -> Demand:
    """Convert the shape and the role of a question; raises InvalidRequest if it is malformed."""
    demand = framework_pb2.Demand(unit=wire.unit, constraints=wire.constraints, role=wire.role)
    (converted,) = demands_from_wire([demand])
    return converted


def _change(wire: pb.RoleChange) -> RoleChange:
    try:
        role = check_role(wire.role)
        check_count(len(wire.parts), len(_PARTS), "parts of a role")
        parts = set(wire.parts)
        if not parts <= set(_PARTS):
            raise InvalidRequest(f"role {role}: unknown parts {sorted(parts - set(_PARTS))}")
        settings = settings_from_wire(wire.settings) if wire.HasField("settings") else None
    except InvalidRequest as refusal:
        raise shortened(refusal) from None
    return RoleChange(role, settings, tuple(part for n, part in _PARTS.items() if n in parts))
