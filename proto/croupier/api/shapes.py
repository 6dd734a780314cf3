"""Differences between JSON objects and the fields of their messages.

Rule: a key is a field of its name. `objects.py` says which units differ, and `forms.py` how values
are shown; all others are in the table here, by the names of messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.message import Message

from croupier.api import http_pb2 as http
from croupier.api.forms import (
    BOOLEAN,
    INTEGER,
    NUMBER,
    STRING,
    Form,
    array,
    mapping,
    or_null,
    weight,
)
from croupier.model.access import BUILTIN_GROUPS, BUILTIN_RULES
from croupier.model.roles import RoleSettings
from croupier.v1 import access_pb2, task_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.wire.resources import resources_from_wire


@dataclass(frozen=True, slots=True)
class Shape:
    """The differences between a JSON object and its message.

    Attributes:
        name: the object's name; empty: the message's.
        parts: messages within this one whose fields may be keys, too.
        keys: the first keys, in order; KEY=FIELD renames one. The other fields of the message
            itself come after them.
        without: keys that are left out.
        nullable: keys that are null instead of 0 or empty.
        made: keys that are made of the whole message.
        required: of a request: the keys that it must have; an optional field may be left out.
    """

    name: str = ""
    parts: str = ""
    keys: str = ""
    without: str = ""
    nullable: str = ""
    made: Mapping[str, Form] = field(default_factory=dict)
    required: str | None = None


def _weight_milli(role: pb.RoleView) -> int:
    settings = role.settings
    return settings.weight_milli if settings.HasField("weight_milli") else RoleSettings().weight


def _free(overview: pb.GetOverviewResponse) -> dict[str, int]:
    total, *held = (
        resources_from_wire(each).scalars
        for each in (overview.total, overview.used, overview.offered, overview.held)
    )
    return {
        name: max(0, milli - sum(each.get(name, 0) for each in held))
        for name, milli in total.items()
    }


def _if_whole(task: pb.TaskView, value: Any) -> Any:
    """Return a value that only tasks with their commands have; else None."""
    return value if task.task.HasField("command") else None


def _part(name: str, kind: type[Message], about: str) -> Form:
    """Return the form of a part of a task that not every task has."""
    return Form(
        or_null(kind.DESCRIPTOR),
        lambda task: getattr(task.task, name) if task.task.HasField(name) else None,
        about,
    )


def _limits(wire: Any) -> http.TaskLimits:
    return http.TaskLimits(limits=wire.limits, max_completion_ms=wire.max_completion_ms)


def _rules(policy: access_pb2.GetPolicyResponse) -> list[access_pb2.Rule]:
    """Return the built-in rules, and then the others by name."""
    builtin = [
        access_pb2.Rule(
            name=rule.name,
            subject=rule.subject,
            actions=[action.value for action in rule.actions],
            object=rule.object,
        )
        for rule in BUILTIN_RULES
    ]
    own = (rule for rule in policy.rules if rule.name not in _BUILTIN_NAMES)
    return [*builtin, *sorted(own, key=lambda rule: rule.name)]


_BUILTIN_NAMES: Final = frozenset(rule.name for rule in BUILTIN_RULES)
_LIMITS: Final = http.TaskLimits.DESCRIPTOR
_REQUESTS: Final = ("Agent", "Drain", "Unreserve", "Kill", "Release", "Teardown")
# Objects by their messages.
SHAPES: Final[Mapping[str, Shape]] = {
    **{f"{name}Request": Shape(required="") for name in _REQUESTS},
    "AgentView": Shape(
        "Agent",
        "agent",
        "agent_id hostname state http_address attributes total used offered held tasks deactivated"
        " drain isolation devices",
    ),
    "CallerAndActions": Shape(
        parts="caller", keys="principal groups credential expires is_auth_on", without="caller"
    ),
    "Demand": Shape(
        nullable="role",
        keys="unit count constraints min_per_offer",
        made={
            "min_per_offer": Form(
                INTEGER, lambda wire: wire.min_per_offer if wire.HasField("min_per_offer") else 1
            )
        },
    ),
    "Error": Shape(required="code message", nullable="leader leader_http"),
    "ExplainResponse": Shape("Explanation"),
    "FitResponse": Shape("Fit"),
    "FrameworkView": Shape(
        "Framework",
        "framework",
        "framework_id name roles state suppressed hostname webui_url failover_timeout_s labels",
        without="owner",
    ),
    "GetHeatmapResponse": Shape("Heatmap"),
    "GetHistoryResponse": Shape("History"),
    "GetOverviewResponse": Shape(
        "Overview",
        keys="master_id epoch total used offered held free",
        made={"free": Form(mapping(INTEGER), _free, "what is neither used nor offered nor held.")},
    ),
    "GetPolicyResponse": Shape(
        "Policy",
        keys="groups rules",
        made={"rules": Form(array(access_pb2.Rule.DESCRIPTOR), _rules)},
    ),
    "GetUsageResponse": Shape("UsageReport"),
    "GetTaskUseResponse": Shape(
        "TaskUse",
        without="max_completion_s",
        made={"limits": Form(_LIMITS, _limits, "those that its agent enforces.")},
    ),
    "Group": Shape(
        made={
            "is_builtin": Form(
                BOOLEAN, lambda group: group.is_builtin or group.name in BUILTIN_GROUPS
            )
        }
    ),
    "HoldRequest": Shape(required="agent role resources"),
    "HoldView": Shape("Hold", nullable="ttl_left_s"),
    "ReservationRequest": Shape(required="role begin_time_ms end_time_ms"),
    "ReservationView": Shape("Reservation"),
    "Isolation": Shape(nullable="image"),
    "ListMastersResponse": Shape(
        "MasterPage",
        keys="items=masters next",
        without="now_ms",
        made={"next": Form(or_null(STRING), lambda _: None)},
    ),
    "ListTaskFilesResponse": Shape("FileList", keys="items=files"),
    "MasterState": Shape(
        parts="master",
        keys="master_id version is_leader=leader leader_address http_address leader_http epoch"
        " total used offered held allocation_passes agents_missing decided_in_s",
        nullable="leader_address http_address leader_http",
    ),
    "MasterView": Shape(
        "KnownMaster",
        nullable="master_id http_address version since_ms epoch term_since_ms problem",
    ),
    "OfferView": Shape(
        "Offer",
        "offer",
        "offer_id framework_id framework_name agent_id hostname role resources lease_s",
    ),
    "PassedOver": Shape("Reason"),
    "RoleChange": Shape(required="role"),
    "RoleMoved": Shape(keys="role", made={"role": Form(STRING, lambda moved: moved.after.role)}),
    "RoleView": Shape(
        "Role",
        "settings",
        "role weight weight_milli resource_weights guarantee limit preemption min_run_s"
        " half_life_s budget budget_used budget_used_ppm",
        made={
            "weight": Form(NUMBER, lambda role: weight(_weight_milli(role))),
            "weight_milli": Form(INTEGER, _weight_milli, "the weight in thousandths."),
        },
    ),
    "RolesRequest": Shape(required="changes"),
    "Rule": Shape(made={"is_builtin": Form(BOOLEAN, lambda rule: rule.name in _BUILTIN_NAMES)}),
    "TaskFile": Shape("File"),
    "TaskLimits": Shape(
        "Limits",
        "limits",
        "cpus mem disk pids files",
        nullable="cpus mem disk pids files max_completion_s",
    ),
    "TaskView": Shape(
        "Task",
        "task status task.command",
        "task_id name framework_id framework_name agent_id hostname role state reason source"
        " message exit_code signal pid time_ms since_ms submitted_ms placed_ms started_ms ended_ms"
        " resources limits usage isolation group gang executor_id command=argv shell secrets labels"
        " hold_id volumes preemption requeues forecast",
        nullable="since_ms command shell secrets",
        made={
            "limits": Form(_LIMITS, lambda task: _limits(task.task)),
            "isolation": Form(
                or_null(task_pb2.Isolation.DESCRIPTOR),
                lambda task: _if_whole(task, task.task.isolation),
                "null unless it was requested.",
            ),
            "group": _part("group", task_pb2.TaskGroup, "null if it is in none."),
            "preemption": _part(
                "preemption", task_pb2.TaskPreemption, "null unless it was requested."
            ),
            "gang": _part("gang", task_pb2.GangMember, "null if it is in none."),
            "labels": Form(
                or_null(array(task_pb2.Label.DESCRIPTOR)),
                lambda task: _if_whole(task, list(task.task.labels)),
                "null unless they were requested.",
            ),
        },
    ),
    "UpdateRolesResponse": Shape("RolesChange"),
    "Usage": Shape(
        nullable="memory_peak_bytes pids_peak read_bytes written_bytes disk_bytes run_s"
    ),
    "WatchEventsResponse": Shape("EventPage", keys="items=events next=last_id", nullable="reset"),
    "WhoAmIResponse": Shape("Caller", without="time_ms"),
    **{
        f"List{noun}sResponse": Shape(
            f"{noun}Page",
            keys=f"items={noun.lower()}s next=next_page_token",
            without="now_ms",
            nullable="next",
        )
        for noun in ("Agent", "Framework", "Hold", "Offer", "Reservation", "Role", "Task")
    },
}
