"""Answers about what could start now.

Rule: a caller learns numbers of a cluster or a role that it may view or use, and the names of what
it may view.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from croupier.master.allocator import PassedOver
from croupier.master.allocator.room import Room
from croupier.master.core.effects import Pause
from croupier.master.core.fit import Move, fit
from croupier.master.core.state import State
from croupier.master.services import views
from croupier.master.services.explanations import named_reason, reason_to_wire
from croupier.master.services.visibility import Visibility
from croupier.model.access import Action, role_object
from croupier.model.demand import Demand
from croupier.model.errors import PermissionDenied
from croupier.model.ids import NO_FRAMEWORK, Role
from croupier.model.principal import Principal
from croupier.v1 import operator_pb2 as pb
from croupier.wire.resources import resources_to_wire

# Agents and tasks that an answer names.
MOST_NAMED: Final = 100


def view_fit(
    state: State, demand: Demand, now: float, caller: Principal
) -> Generator[Pause, None, pb.FitResponse]:
    """Return what could start now of a demand, and what would have to end for one more.

    Raises PermissionDenied if the caller may view neither the cluster nor the demand's role, nor
    register in that.
    """
    visible = Visibility(state, caller)
    _check(state, visible, demand.role, caller)
    room, move = yield from fit(state, demand, now)
    named = [each for each in room.agents if visible.has_agent(each[0])][:MOST_NAMED]
    wire = pb.FitResponse(
        units=room.units,
        fitting=room.fitting,
        other_agents=len(room.agents) - len(named),
        reasons=[
            reason_to_wire(named_reason(state, each, NO_FRAMEWORK))
            for each in _reasons(state, room, demand.role, visible)
        ],
        limit=room.limit if visible.has_all else room.limit and "a role is at its limit",
    )
    for agent_id, units in named:
        hostname = state.agents[agent_id].hostname
        wire.agents.add(agent_id=agent_id, hostname=hostname, units=units)
    if move is not None:
        wire.move.CopyFrom(_move(state, move, visible, now))
    return wire


def _check(state: State, visible: Visibility, role: Role | None, caller: Principal) -> None:
    permissions = state.permissions(caller)
    may_use = role is not None and permissions.decide(Action.REGISTER, role_object(role))
    if not (visible.has_cluster or may_use or (role is not None and visible.has_role(role))):
        raise PermissionDenied(
            f"{caller} may not view the cluster: name a role that you may view or register in"
        )


def _reasons(state: State, room: Room, role: Role | None, visible: Visibility) -> list[PassedOver]:
    """Return why agents have no room, by cause; the details only to a caller that may view all."""
    about = role or Role("")
    found = [
        PassedOver(cause, agents, text if visible.has_all else "", about)
        for cause, (agents, text) in room.rejected.items()
    ]
    found.sort(key=lambda each: (-each.agents, each.cause.value))
    return found + (views.withheld_reasons(state, about) if visible.has_all else [])


def _move(state: State, move: Move, visible: Visibility, now: float) -> pb.FitMove:
    wire = pb.FitMove(offers=move.offers, count=len(move.tasks))
    if visible.has_agent(move.agent_id):
        wire.agent_id, wire.hostname = move.agent_id, state.agents[move.agent_id].hostname
    for task in move.tasks:
        framework = state.frameworks[task.framework_id]
        if len(wire.tasks) < MOST_NAMED and visible.in_role(task.role, framework.owner):
            wire.tasks.add(
                framework_id=task.framework_id,
                framework_name=framework.name,
                task_id=task.task_id,
                role=task.role,
                resources=resources_to_wire(task.info.resources),
                age_ms=max(0, round((now - task.since) * 1000)),
            )
    return wire
