"""What the master lists, as plain objects: what `--json` prints and tables are made of.

Keys are snake_case and stay; amounts are there for people, as `text`, and exactly, as whole
thousandths (of a MiB for mem and disk).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from croupier.model.attributes import attribute_text
from croupier.model.resources import Resources
from croupier.model.roles import format_amounts
from croupier.model.scalar import format_milli
from croupier.model.task import Reason, Source, TaskState
from croupier.v1 import framework_pb2, resources_pb2, task_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.wire.resources import (
    attributes_from_wire,
    constraint_from_wire,
    resources_from_wire,
)
from croupier.wire.roles import settings_from_wire

View = dict[str, Any]

PPM = 1_000_000


def agent_view(agent: pb.AgentView) -> View:
    """One agent; `drain` is None unless it is being drained, `decided_in_s` unless it is away."""
    total, used, offered = map(resources_from_wire, (agent.total, agent.used, agent.offered))
    return {
        "agent_id": agent.agent.agent_id,
        "hostname": agent.agent.hostname,
        "state": agent.state,
        "http_address": agent.agent.http_address,
        "attributes": {
            name: attribute_text(value)
            for name, value in attributes_from_wire(agent.agent.attributes).items()
        },
        "total": amount_view(total),
        "used": amount_view(used),
        "offered": amount_view(offered),
        "tasks": agent.tasks,
        "deactivated": agent.deactivated,
        "drain": _drain(agent.drain) if agent.HasField("drain") else None,
        "problems": [{"part": each.part, "message": each.message} for each in agent.problems],
        "decided_in_s": agent.decided_in_ms / 1000 if agent.HasField("decided_in_ms") else None,
    }


def framework_view(framework: pb.FrameworkView) -> View:
    """One framework; `removed_in_s` is None unless it is away."""
    info = framework.framework
    return {
        "framework_id": info.framework_id,
        "name": info.name,
        "roles": list(info.roles),
        "state": framework.state,
        "suppressed": framework.suppressed,
        "hostname": info.hostname,
        "webui_url": info.webui_url,
        "failover_timeout_s": info.failover_timeout_ms / 1000,
        "labels": _labels(info.labels),
        "demands": [demand_view(demand) for demand in framework.demands],
        "used": _amount(framework.used),
        "offered": _amount(framework.offered),
        **_share(framework.share_ppm),
        **_entitlement(framework.entitlement_ppm),
        "suppressed_roles": list(framework.suppressed_roles),
        "tasks": framework.tasks,
        "offers": framework.offers,
        "removed_in_s": framework.removed_in_ms / 1000
        if framework.HasField("removed_in_ms")
        else None,
    }


def role_view(role: pb.RoleView) -> View:
    """One role, with everything below it; `preemption` is None where it is as the parent's."""
    settings = settings_from_wire(role.settings)
    return {
        "role": role.role,
        "weight": _weight(settings.weight),
        "weight_milli": settings.weight,
        "resource_weights": {n: _weight(w) for n, w in settings.resource_weights.items()},
        "guarantee": scalars_view(settings.guarantee),
        "limit": scalars_view(settings.limit),
        "preemption": settings.preemption,
        **_share(role.share_ppm),
        **_entitlement(role.entitlement_ppm),
        "used": _amount(role.used),
        "offered": _amount(role.offered),
        "frameworks": role.frameworks,
        "tasks": role.tasks,
    }


def offer_view(offer: pb.OfferView) -> View:
    """One outstanding offer."""
    return {
        "offer_id": offer.offer.offer_id,
        "framework_id": offer.framework_id,
        "agent_id": offer.offer.agent_id,
        "role": offer.offer.role,
        "resources": _amount(offer.offer.resources),
        "lease_s": offer.offer.lease_ms / 1000,
    }


def task_view(task: pb.TaskView) -> View:
    """One task; `command`, `shell` and `labels` are None if the master was not asked for them."""
    status, command = task.status, task.task.command
    return {
        "task_id": task.task.task_id,
        "name": task.task.name,
        "framework_id": task.framework_id,
        "agent_id": task.agent_id,
        "role": task.role,
        "state": _name(TaskState, status.state),
        "reason": _name(Reason, status.reason),
        "source": _name(Source, status.source),
        "message": status.message,
        "exit_code": status.exit_code if status.HasField("exit_code") else None,
        "signal": status.signal if status.HasField("signal") else None,
        "pid": status.pid,
        "time_ms": status.time_ms,
        "resources": _amount(task.task.resources),
        "command": list(command.argv) or None,
        "shell": command.shell or None,
        "labels": _labels(task.task.labels) if task.task.HasField("command") else None,
    }


def role_moved_view(moved: pb.RoleMoved) -> View:
    """A role before and after its settings, or those of another, were changed."""
    return {
        "role": moved.after.role,
        "before": role_view(moved.before),
        "after": role_view(moved.after),
    }


def reason_view(reason: pb.PassedOver) -> View:
    """One cause for which a framework was passed over."""
    return {
        "cause": reason.cause,
        "role": reason.role,
        "agents": reason.agents,
        "about_agent_id": reason.about_agent_id or None,
        "about_role": reason.about_role or None,
        "detail": reason.detail,
    }


def demand_view(demand: framework_pb2.Demand) -> View:
    """What a framework wants; `count` is None for without end, `role` None for its first."""
    return {
        "unit": _amount(demand.unit),
        "count": demand.count if demand.HasField("count") else None,
        "constraints": [str(constraint_from_wire(wire)) for wire in demand.constraints],
        "min_per_offer": demand.min_per_offer if demand.HasField("min_per_offer") else 1,
        "max_per_offer": demand.max_per_offer if demand.HasField("max_per_offer") else None,
        "role": demand.role or None,
    }


def amount_view(amount: Resources) -> View:
    """An amount for people and exactly."""
    return {
        "text": str(amount),
        "milli": dict(amount.scalars),
        "ranges": {name: [list(pair) for pair in pairs] for name, pairs in amount.ranges.items()},
        "sets": {name: sorted(items) for name, items in amount.sets.items()},
    }


def scalars_view(amounts: Mapping[str, int]) -> View:
    """Amounts of which 0 counts, such as limits."""
    return {"text": format_amounts(amounts), "milli": dict(amounts)}


def _drain(drain: pb.Drain) -> View:
    return {
        "done": drain.done,
        "grace_s": drain.grace_ms / 1000 if drain.HasField("grace_ms") else None,
        "tasks_left": drain.tasks_left,
        "estimate_s": drain.estimate_ms / 1000 if drain.HasField("estimate_ms") else None,
        "blockers": [
            {"framework_id": each.framework_id, "task_id": each.task_id, "reason": each.reason}
            for each in drain.blockers
        ],
    }


def _amount(wire: resources_pb2.Resources) -> View:
    return amount_view(resources_from_wire(wire))


def _share(share_ppm: int) -> View:
    return {"share": share_ppm / PPM, "share_ppm": share_ppm}


def _entitlement(entitlement_ppm: int) -> View:
    return {"entitlement": entitlement_ppm / PPM, "entitlement_ppm": entitlement_ppm}


def _weight(milli: int) -> float:
    return float(format_milli(milli))


def _labels(labels: Iterable[task_pb2.Label]) -> list[View]:
    return [{"key": label.key, "value": label.value} for label in labels]


def _name(kind: type[TaskState | Reason | Source], number: int) -> str:
    """The name in an enumeration; the number itself if a newer master made it up."""
    try:
        return kind(number).name
    except ValueError:
        return str(number)
