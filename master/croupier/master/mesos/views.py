"""Objects of the operator API of Mesos: of its v1 calls, and of its older pages.

The calls have the same objects as events. The pages are made of them: they name resources in one
object, and times in seconds. Each object is made of the view that `croupier` and the HTTP API get,
so it shows no more.
"""

from __future__ import annotations

from typing import Any, Final

from croupier.master.mesos.amounts import resources_to_json
from croupier.master.mesos.events import Events, agent_fields
from croupier.master.mesos.tasks import executor_id_in
from croupier.mesos.fields import NANOSECONDS_PER_MS, VERSION, Json, made_id, made_labels, unmilli
from croupier.model.ranges import format_ranges
from croupier.model.resources import FIRST
from croupier.v1 import operator_pb2 as pb
from croupier.v1.resources_pb2 import Resources
from croupier.wire.resources import attributes_from_wire, resources_from_wire
from croupier.wire.task import status_from_wire

_ROLE: Final = {"role": "*"}
# Names of fields that differ on pages.
_ON_PAGES: Final = {
    "agent_id": "slave_id",
    "allocated_resources": "used_resources",
    "task_id": "id",
    "total_resources": "unreserved_resources",
}
# Shows each state by its own name.
_EVENTS: Final = Events(
    {"capabilities": [{"type": "PARTITION_AWARE"}, {"type": "TASK_KILLING_STATE"}]}, {}, {}
)


def agent_object(view: pb.AgentView) -> Json:
    """Return an agent of GET_AGENTS."""
    agent = view.agent
    named = agent_fields(
        agent.agent_id, agent.hostname, attributes_from_wire(agent.attributes), agent.http_address
    )
    info = {"id": named.pop("agent_id"), **named, "resources": _resources(view.total)}
    info["port"] = info.pop("url", {}).get("address", {}).get("port", 0)
    is_withheld = view.deactivated or view.HasField("drain")
    return {
        "active": view.state == "connected" and not is_withheld,
        "agent_info": info,
        "pid": f"slave(1)@{agent.hostname}:{info['port']}",
        "version": VERSION,
        "registered_time": _time(view.connected_since_ms),
        "total_resources": info["resources"],
        "allocated_resources": _resources(view.used),
        "offered_resources": _resources(view.offered),
        "deactivated": is_withheld,
    }


def agent_page(view: pb.AgentView) -> Json:
    """Return an agent of `/slaves`."""
    made = agent_object(view)
    return {"attributes": {}, **_page(made.pop("agent_info") | made), "reserved_resources": {}}


def framework_object(view: pb.FrameworkView) -> Json:
    """Return a framework of GET_FRAMEWORKS."""
    framework = view.framework
    return {
        "framework_info": {
            "id": made_id(framework.framework_id),
            "name": framework.name,
            "user": "",
            "roles": list(framework.roles),
            "failover_timeout": framework.failover_timeout_ms / 1000,
            "checkpoint": True,
            "hostname": framework.hostname,
            "webui_url": framework.webui_url,
            "principal": view.owner,
        },
        "active": view.state == "connected",
        "connected": view.state == "connected",
        "recovered": False,
        "registered_time": _time(view.connected_since_ms),
        "allocated_resources": _resources(view.used),
        "offered_resources": _resources(view.offered),
    }


def framework_page(view: pb.FrameworkView) -> Json:
    """Return a framework of `/frameworks`, without its tasks."""
    made = framework_object(view)
    found = _page(made.pop("framework_info") | made)
    return {
        **found,
        "role": found["roles"][0] if found["roles"] else "*",
        "unregistered_time": 0.0,
        "resources": found["used_resources"],
        "tasks": [],
        "unreachable_tasks": [],
        "completed_tasks": [],
        "executors": [],
    }


def task_object(view: pb.TaskView) -> Json:
    """Return a task of GET_TASKS."""
    status = _EVENTS.status(status_from_wire(view.status))
    status.pop("uuid", None)
    found = {
        "name": view.task.name,
        "task_id": made_id(view.task.task_id),
        "framework_id": made_id(view.framework_id),
        "agent_id": made_id(view.agent_id),
        "state": status["state"],
        "resources": _resources(view.task.resources),
        "statuses": [status],
    }
    if executor_id := executor_id_in(view.task.executor_id, view.agent_id):
        found["executor_id"] = made_id(executor_id)
    if view.task.labels:
        found["labels"] = made_labels((each.key, each.value) for each in view.task.labels)
    return found


def task_page(view: pb.TaskView) -> Json:
    """Return a task of `/tasks`."""
    made = task_object(view)
    (status,) = made["statuses"]
    return {
        "executor_id": "",
        **_page(made),
        "role": view.role,
        "statuses": [{"state": made["state"], "timestamp": status.get("timestamp", 0.0)}],
        "labels": made.get("labels", {}).get("labels", []),
    }


def role_object(view: pb.RoleView) -> Json:
    """Return a role of GET_ROLES."""
    weight = view.settings.weight_milli if view.settings.HasField("weight_milli") else 1000
    return {"name": view.role, "weight": unmilli(weight), "resources": _resources(view.used)}


def role_page(view: pb.RoleView) -> Json:
    """Return a role of `/roles`."""
    return _page(role_object(view))


def metric_values(overview: pb.GetOverviewResponse, uptime_s: float) -> dict[str, float]:
    """Return the metrics of `/metrics/snapshot`."""
    agents, frameworks, tasks = overview.agents, overview.frameworks, overview.tasks
    away = {"disconnected", "unreachable"}
    here = sum(number for state, number in agents.items() if state not in away)
    found = {
        "master/elected": 1.0,
        "master/uptime_secs": uptime_s,
        "master/outstanding_offers": overview.offers,
        "master/slaves_active": agents["connected"],
        "master/slaves_inactive": here - agents["connected"],
        "master/slaves_connected": here,
        "master/slaves_disconnected": agents["disconnected"],
        "master/slaves_unreachable": agents["unreachable"],
        "master/frameworks_active": frameworks["connected"],
        "master/frameworks_connected": frameworks["connected"],
        "master/frameworks_disconnected": frameworks["disconnected"],
    }
    for state, number in tasks.items():
        found[f"master/tasks_{state.lower()}"] = number
    for name in FIRST:
        field = f"{name}_milli"
        total, used = getattr(overview.total, field), getattr(overview.used, field)
        found[f"master/{name}_total"] = unmilli(total)
        found[f"master/{name}_used"] = unmilli(used)
        found[f"master/{name}_percent"] = used / total if total else 0.0
    return {name: float(value) for name, value in found.items()}


def _time(ms: int) -> Json:
    return {"nanoseconds": ms * NANOSECONDS_PER_MS}


def _resources(wire: Resources) -> list[Json]:
    return resources_to_json(resources_from_wire(wire), _ROLE)


def _page(of: Json) -> Json:
    """Return an object as pages show it: its ids, times and amounts are plain values."""
    found: Json = {}
    for name, value in of.items():
        match value:
            case {"value": plain}:
                value = plain
            case {"nanoseconds": nanoseconds}:
                value = nanoseconds / 1e9
            case list() if name.endswith(("attributes", "resources")):
                amounts = {each["name"]: _plain(each) for each in value}
                value = amounts if name == "attributes" else dict.fromkeys(FIRST, 0.0) | amounts
        found[_ON_PAGES.get(name, name)] = value
    return found


def _plain(of: Json) -> Any:
    kind = of["type"]
    if kind == "RANGES":
        return format_ranges(tuple((each["begin"], each["end"]) for each in of["ranges"]["range"]))
    if kind == "SET":
        return f"{{{', '.join(of['set']['item'])}}}"
    return of[kind.lower()]["value"]
