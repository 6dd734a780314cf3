"""Changes, each with its dry run.

A dry run reads what the change would affect, and checks the caller's permission; so it has no line
in the audit log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from croupier.api import http_pb2 as http
from croupier.api.affected import affected, is_live
from croupier.api.forms import PARTS_OF_ROLE, PREEMPTION
from croupier.master.core.authorisation import require
from croupier.master.web.lists import AGENTS, FRAMEWORKS, HOLDS, RESERVATIONS, TASKS, find_task
from croupier.master.web.table import ApiRoute, Asked, read_duration
from croupier.model.access import Action, Object, agent_object, role_object
from croupier.model.attributes import parse_constraint
from croupier.model.budget import parse_budget
from croupier.model.errors import Conflict, InvalidRequest, NotFound
from croupier.model.ids import AgentId, Role
from croupier.model.preemption import parse_min_run
from croupier.model.reservation import DEFAULT_NOTICE, PERIODS
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings, parse_amounts, parse_weight
from croupier.model.task import TaskState
from croupier.model.task_checks import check_grace
from croupier.v1 import operator_pb2 as pb
from croupier.v1.task_pb2 import KillPolicy
from croupier.wire.resources import constraint_to_wire, resources_to_wire
from croupier.wire.roles import settings_to_wire


def _grace(asked: Asked) -> int | None:
    """Return the grace of a request in milliseconds; None for none. Raises InvalidRequest."""
    text = asked.body.get("grace")
    return None if text is None else check_grace(read_duration(text))


def _require(asked: Asked, action: Action, target: Object, owner: str = "") -> None:
    """Raise PermissionDenied if the caller may not do what its dry run is about."""
    permissions = asked.calls.permissions
    if permissions is not None:
        require(permissions, action, target, owner)


async def _affected(asked: Asked, **fields: Any) -> http.Affected:
    tasks = [each async for page in TASKS.pages(asked, **fields) for each in filter(is_live, page)]
    names = {
        each.framework.framework_id: each.framework.name
        async for page in FRAMEWORKS.pages(asked)
        for each in page
    }
    hostnames = {
        each.agent.agent_id: each.agent.hostname
        async for page in AGENTS.pages(asked)
        for each in page
    }
    return affected(tasks, names, hostnames)


async def _count_holds(asked: Asked, lost: http.Affected, key: str, object_id: str) -> None:
    """Count the holds and volumes of a framework or an agent, by the name of its id."""
    async for page in HOLDS.pages(asked, text=object_id):
        for each in page:
            if getattr(each, key) == object_id and not each.orphan:
                lost.volumes += each.volume
                lost.holds += not each.volume


def _of_agent(
    verb: str, method: str, summary: str, body: Any = http.AgentRequest, *, ends_tasks: bool = False
) -> ApiRoute:
    """Return the route to a change of an agent by `method`, such as `DrainAgent`."""

    async def handle(asked: Asked) -> http.AgentAction:
        agent_id, grace_ms = asked.path["agent_id"], _grace(asked)
        grace = {} if grace_ms is None else {"grace_ms": grace_ms}
        message = getattr(pb, f"{method}Request")(agent=agent_id, **grace)
        if not asked.body.get("dry_run", False):
            return http.AgentAction(agent=(await asked.ask(method, message)).agent)
        found = await AGENTS.find(asked, agent_id)
        _require(asked, Action.OPERATE_AGENTS, agent_object(AgentId(agent_id)))
        lost = await _affected(asked, agent=agent_id) if ends_tasks else http.Affected()
        if verb == "gone":
            await _count_holds(asked, lost, "agent_id", agent_id)
        return http.AgentAction(dry_run=True, agent=found, affected=lost)

    return _post(f"/agents/{{agent_id}}/{verb}", handle, summary, body, http.AgentAction)


async def _kill(asked: Asked) -> http.KillAction:
    framework_id, task_id = asked.path["framework_id"], asked.path["task_id"]
    grace_ms = _grace(asked)
    policy = None if grace_ms is None else KillPolicy(grace_ms=grace_ms)
    if not asked.body.get("dry_run", False):
        request = pb.KillTaskRequest(task_id=task_id, framework_id=framework_id, kill_policy=policy)
        return http.KillAction(task=(await asked.ask("KillTask", request)).task)
    found = await find_task(asked, framework_id, task_id)
    try:
        owner = (await FRAMEWORKS.find(asked, framework_id)).owner
    except NotFound:
        owner = ""
    _require(asked, Action.KILL, role_object(Role(found.role)), owner)
    if not is_live(found):
        raise Conflict(f"task {task_id} has ended: {TaskState(found.status.state).name}")
    return http.KillAction(dry_run=True, task=found)


async def _teardown(asked: Asked) -> http.TeardownAction:
    framework_id = asked.path["framework_id"]
    if not asked.body.get("dry_run", False):
        request = pb.TeardownFrameworkRequest(framework_id=framework_id)
        answer = await asked.ask("TeardownFramework", request)
        return http.TeardownAction(framework_id=framework_id, tasks=answer.tasks)
    found = await FRAMEWORKS.find(asked, framework_id)
    for role in found.framework.roles:
        _require(asked, Action.TEARDOWN, role_object(Role(role)), found.owner)
    lost = await _affected(asked, framework_id=framework_id)
    await _count_holds(asked, lost, "framework_id", framework_id)
    return http.TeardownAction(
        dry_run=True, framework_id=framework_id, framework=found, tasks=lost.tasks, affected=lost
    )


async def _hold(asked: Asked) -> http.HoldAction:
    body = asked.body
    ttl = body.get("ttl")
    request = pb.CreateHoldRequest(
        agent=body["agent"],
        role=body["role"],
        resources=resources_to_wire(Resources.parse(body["resources"])),
        ttl_ms=0 if ttl is None else read_duration(ttl),
        hold_id=body.get("hold_id", ""),
        volume=body.get("volume", False),
    )
    return http.HoldAction(hold=(await asked.ask("CreateHold", request)).hold)


async def _release(asked: Asked) -> http.HoldAction:
    hold_id = asked.path["hold_id"]
    if not asked.body.get("dry_run", False):
        request = pb.ReleaseHoldRequest(hold_id=hold_id)
        return http.HoldAction(hold=(await asked.ask("ReleaseHold", request)).hold)
    found = await HOLDS.find(asked, hold_id)
    try:
        owner = (await FRAMEWORKS.find(asked, found.framework_id)).owner
    except NotFound:
        owner = ""
    _require(asked, Action.OPERATE_AGENTS, agent_object(AgentId(found.agent_id)), owner)
    return http.HoldAction(dry_run=True, hold=found)


async def _reserve(asked: Asked) -> http.ReservationAction:
    body = asked.body
    request = pb.CreateReservationRequest(
        role=body["role"],
        agents=body.get("agents", 1),
        begin_time_ms=body["begin_time_ms"],
        end_time_ms=body["end_time_ms"],
        every_ms=PERIODS[body.get("every", "")],
        notice_ms=read_duration(body.get("notice", DEFAULT_NOTICE)),
        least=resources_to_wire(Resources.parse(body.get("least", ""))),
        constraints=[
            constraint_to_wire(parse_constraint(text)) for text in body.get("constraints", ())
        ],
        reservation_id=body.get("reservation_id", ""),
    )
    made = await asked.ask("CreateReservation", request)
    return http.ReservationAction(reservation=made.reservation)


async def _unreserve(asked: Asked) -> http.ReservationAction:
    reservation_id = asked.path["reservation_id"]
    if not asked.body.get("dry_run", False):
        request = pb.DeleteReservationRequest(reservation_id=reservation_id)
        ended = await asked.ask("DeleteReservation", request)
        return http.ReservationAction(reservation=ended.reservation)
    found = await RESERVATIONS.find(asked, reservation_id)
    _require(asked, Action.CHANGE_ROLES, role_object(Role(found.role)))
    return http.ReservationAction(dry_run=True, reservation=found)


def _post(path: str, handler: Any, summary: str, body: Any, answer: Any) -> ApiRoute:
    return ApiRoute(path, handler, summary, answer, method="POST", body=body)


def change_of(change: Mapping[str, Any]) -> pb.RoleChange:
    """Return the message of a change, a `RoleChange` in JSON; raises InvalidRequest."""
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
        parse_min_run(change.get("min_run", "inherit")),
        read_duration(change.get("half_life", "0s")),
        parse_budget(change.get("budget", "none")),
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
    _of_agent(
        "drain",
        "DrainAgent",
        "End an agent's tasks, and withhold it from offers.",
        http.DrainRequest,
        ends_tasks=True,
    ),
    _of_agent(
        "deactivate", "DeactivateAgent", "Withhold an agent from offers; its tasks keep running."
    ),
    _of_agent("reactivate", "ReactivateAgent", "Offer an agent again."),
    _of_agent(
        "gone", "MarkAgentGone", "Declare an agent and its tasks lost, for good.", ends_tasks=True
    ),
    _post(
        "/frameworks/{framework_id}/teardown",
        _teardown,
        "End a framework and its tasks, for good.",
        http.TeardownRequest,
        http.TeardownAction,
    ),
    _post(
        "/tasks/{framework_id}/{task_id}/kill",
        _kill,
        "Kill a task.",
        http.KillRequest,
        http.KillAction,
    ),
    _post(
        "/holds",
        _hold,
        "Hold free resources of an agent for a role.",
        http.HoldRequest,
        http.HoldAction,
    ),
    _post(
        "/holds/{hold_id}/release",
        _release,
        "End a hold; tasks in it run on.",
        http.ReleaseRequest,
        http.HoldAction,
    ),
    _post(
        "/reservations",
        _reserve,
        "Reserve agents for a role, from a certain time on.",
        http.ReservationRequest,
        http.ReservationAction,
    ),
    _post(
        "/reservations/{reservation_id}/delete",
        _unreserve,
        "End a reservation, with all its later occurrences.",
        http.UnreserveRequest,
        http.ReservationAction,
    ),
    _post(
        "/roles",
        _change,
        "Change settings of roles: all of them, or none.",
        http.RolesRequest,
        pb.UpdateRolesResponse,
    ),
)
