"""The commands that change roles: ask once, and print what has become different.

Rule: each command means only the parts of a role's settings that it names, so that two
operators who change different parts of one role do not undo each other's work.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from croupier.ctl.connection import connected
from croupier.ctl.tables import preemption_text, resource_weights_text
from croupier.ctl.target import Target
from croupier.ctl.terminal import print_lines
from croupier.ctl.views import View, role_moved_view
from croupier.model.errors import InvalidRequest
from croupier.model.ids import check_role
from croupier.model.roles import RoleSettings, parse_amounts, parse_weight
from croupier.v1 import operator_pb2 as pb
from croupier.wire.roles import settings_to_wire

PREEMPTION = {"on": True, "off": False, "inherit": None}

_NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Manner:
    """How a change is asked for and told."""

    dry_run: bool = False
    force: bool = False
    as_json: bool = False


def weight_change(role: str, weight: str, resources: Sequence[str]) -> pb.RoleChange:
    """The change that `weights set` makes; `resources` are such as `cpus=2`.

    Raises:
        InvalidRequest: if an argument cannot be.
    """
    by_resource: dict[str, int] = {}
    for text in resources:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidRequest(f"--resource {text!r} is not NAME=WEIGHT (example: gpus=2)")
        if name in by_resource:
            raise InvalidRequest(f"--resource {name} is given twice")
        by_resource[name] = parse_weight(f"the weight of {name}", value)
    settings = RoleSettings(parse_weight(f"the weight of {role}", weight), by_resource)
    parts = [pb.RoleChange.PART_WEIGHT]
    if by_resource:
        parts.append(pb.RoleChange.PART_RESOURCE_WEIGHTS)
    return _change(role, settings, parts)


def weight_removal(role: str) -> pb.RoleChange:
    """The change that `weights remove` makes.

    Raises:
        InvalidRequest: if the role is illegal.
    """
    return _change(role, None, [pb.RoleChange.PART_WEIGHT, pb.RoleChange.PART_RESOURCE_WEIGHTS])


def quota_change(
    role: str, guarantee: str | None, limit: str | None, preemption: str | None
) -> pb.RoleChange:
    """The change that `quota set` makes; None leaves a part as it is.

    Raises:
        InvalidRequest: if an argument cannot be, or all are None.
    """
    parts = []
    if guarantee is not None:
        parts.append(pb.RoleChange.PART_GUARANTEE)
    if limit is not None:
        parts.append(pb.RoleChange.PART_LIMIT)
    if preemption is not None:
        parts.append(pb.RoleChange.PART_PREEMPTION)
    if not parts:
        raise InvalidRequest("give --guarantee, --limit or --preemption")
    if preemption not in (None, *PREEMPTION):
        raise InvalidRequest(f"--preemption is on, off or inherit, not {preemption!r}")
    settings = RoleSettings(
        guarantee=parse_amounts(guarantee or ""),
        limit=parse_amounts(limit or ""),
        preemption=PREEMPTION[preemption] if preemption is not None else None,
    )
    return _change(role, settings, parts)


def quota_removal(role: str) -> pb.RoleChange:
    """The change that `quota remove` makes.

    Raises:
        InvalidRequest: if the role is illegal.
    """
    parts = [
        pb.RoleChange.PART_GUARANTEE,
        pb.RoleChange.PART_LIMIT,
        pb.RoleChange.PART_PREEMPTION,
    ]
    return _change(role, None, parts)


def change_role(target: Target, change: pb.RoleChange, manner: Manner) -> None:
    """Have the change made, or with `dry_run` only judged, and print what moved.

    Raises:
        InvalidRequest: if it can never be.
        Conflict: if the cluster as it stands does not allow it.
    """
    request = pb.UpdateRolesRequest(changes=[change], dry_run=manner.dry_run, force=manner.force)

    async def asked() -> pb.UpdateRolesResponse:
        async with connected(target) as master:
            return await master.ask(master.service.UpdateRoles, request)

    answer = asyncio.run(asked())
    moved = [role_moved_view(each) for each in answer.roles]
    if manner.as_json:
        told = {"dry_run": answer.dry_run, "roles": moved, "others": answer.others}
        print(json.dumps(told, indent=2))
        return
    if answer.dry_run:
        print("nothing was changed; this is what would be:")
    print_lines(*moved_lines(moved, change.role, answer.others))


def moved_lines(moved: Sequence[View], named: str, others: int) -> Iterator[str]:
    """What became different, one line for each role."""
    for view in moved:
        before, after = view["before"], view["after"]
        differences = list(_differences(before, after))
        if not differences and view["role"] == named:
            differences = ["nothing is different"]
        if differences:
            holds = f"its share is {after['share']:.3f}"
            yield f"{view['role']}: {', '.join(differences)}; {holds}"
    if others:
        yield f"and {others} more roles are entitled to another share"


def _differences(before: View, after: View) -> Iterator[str]:
    for name in ("guarantee", "limit"):
        if before[name]["milli"] != after[name]["milli"]:
            was, is_now = before[name]["text"] or _NOTHING, after[name]["text"] or _NOTHING
            yield f"{name} {was} -> {is_now}"
    if before["weight_milli"] != after["weight_milli"]:
        yield f"weight {before['weight']:g} -> {after['weight']:g}"
    if before["resource_weights"] != after["resource_weights"]:
        yield f"weights {_weights(before)} -> {_weights(after)}"
    if before["preemption"] is not after["preemption"]:
        yield f"preemption {_preemption(before)} -> {_preemption(after)}"
    if before["entitlement_ppm"] != after["entitlement_ppm"]:
        yield f"entitled to {before['entitlement']:.3f} -> {after['entitlement']:.3f}"


def _weights(view: View) -> str:
    weights: Mapping[str, float] = view["resource_weights"]
    return resource_weights_text(weights) or _NOTHING


def _preemption(view: View) -> str:
    return preemption_text(view["preemption"]) or "inherited"


def _change(
    role: str, settings: RoleSettings | None, parts: Sequence[pb.RoleChange.Part.ValueType]
) -> pb.RoleChange:
    check_role(role)
    if settings is None:
        return pb.RoleChange(role=role, parts=parts)
    settings.check()
    return pb.RoleChange(role=role, settings=settings_to_wire(settings), parts=parts)
