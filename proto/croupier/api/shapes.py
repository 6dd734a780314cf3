"""Differences between JSON objects and the fields of their messages.

Rule: a key is a field of its name. `objects.py` says which units differ; all others are in
the tables here, by the names of messages and fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from croupier.api import http_pb2 as http
from croupier.api.times import DURATION, time_text
from croupier.model.access import BUILTIN_GROUPS, BUILTIN_RULES
from croupier.model.attributes import attribute_text
from croupier.model.roles import RoleSettings, format_amounts
from croupier.model.scalar import format_milli
from croupier.model.task import Reason, Source, TaskState
from croupier.model.task_group import GroupPart
from croupier.v1 import access_pb2, task_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.v1.resources_pb2 import NamedScalar, Resources
from croupier.wire.resources import attributes_from_wire, constraint_from_wire, resources_from_wire

Schema = dict[str, Any]
STRING: Final[Schema] = {"type": "string"}
INTEGER: Final[Schema] = {"type": "integer"}
NUMBER: Final[Schema] = {"type": "number"}
BOOLEAN: Final[Schema] = {"type": "boolean"}


def as_it_is(value: Any) -> Any:
    """Return the value unchanged."""
    return value


# What a request may say of a role.
PREEMPTION: Final = {"on": True, "off": False, "inherit": None}
PARTS_OF_ROLE: Final[Mapping[str, pb.RoleChange.Part.ValueType]] = {
    "weight": pb.RoleChange.PART_WEIGHT,
    "resource_weights": pb.RoleChange.PART_RESOURCE_WEIGHTS,
    "guarantee": pb.RoleChange.PART_GUARANTEE,
    "limit": pb.RoleChange.PART_LIMIT,
    "preemption": pb.RoleChange.PART_PREEMPTION,
    "min_run": pb.RoleChange.PART_MIN_RUN,
    "half_life": pb.RoleChange.PART_HALF_LIFE,
    "budget": pb.RoleChange.PART_BUDGET,
}
MOST_CHANGES: Final = 100


class Form(NamedTuple):
    """How a value is shown.

    Attributes:
        schema: its JSON schema, in which a message's descriptor stands for its object.
        convert: returns the JSON of what the field holds, or of the whole message that has no such
            field.
        about: its description; None: the field's comment.
    """

    schema: Any
    convert: Callable[[Any], Any] = as_it_is
    about: str | None = None


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


def array(items: Any) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": items}


def mapping(values: Any) -> Schema:
    """Return the schema of an object with any keys."""
    return {"type": "object", "additionalProperties": values}


def or_null(schema: Any) -> Schema:
    """Return the schema of a value that may be null."""
    if isinstance(schema, dict) and schema.keys() == {"type"}:
        return {"type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def amount_view(wire: Resources) -> dict[str, Any]:
    """Return an amount of resources."""
    amount = resources_from_wire(wire)
    return {
        "text": str(amount),
        "milli": dict(amount.scalars),
        "ranges": {name: [list(pair) for pair in pairs] for name, pairs in amount.ranges.items()},
        "sets": {name: sorted(items) for name, items in amount.sets.items()},
    }


def _scalars(wire: Iterable[NamedScalar]) -> dict[str, Any]:
    """Return scalar amounts, such as limits, and keep zeros."""
    amounts = {each.name: each.milli for each in wire}
    return {"text": format_amounts(amounts), "milli": amounts}


def _weight(milli: int) -> float:
    return float(format_milli(milli))


def _weight_milli(role: pb.RoleView) -> int:
    settings = role.settings
    return settings.weight_milli if settings.HasField("weight_milli") else RoleSettings().weight


def _budget(wire: Any) -> str | None:
    if not wire.amounts:
        return None
    amounts = {each.name: each.milli for each in wire.amounts}
    return f"{format_amounts(amounts)}/{wire.period}/{wire.action}"


def _attributes(wire: Any) -> dict[str, str]:
    return {name: attribute_text(value) for name, value in attributes_from_wire(wire).items()}


def _part_name(number: int) -> str:
    known = [str(part) for part in GroupPart if part == number]
    return known[0] if known else str(number)


def _name_in(kind: type[TaskState | Reason | Source]) -> Callable[[int], str]:
    """Return a function that names a value of an enumeration; it returns unknown numbers."""
    names = {each.value: each.name for each in kind}
    return lambda number: names.get(number) or str(number)


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
_TOKEN_KINDS: Final = {
    access_pb2.TOKEN_KIND_CLIENT: "client",
    access_pb2.TOKEN_KIND_JOIN: "join",
    access_pb2.TOKEN_KIND_AGENT: "agent",
}
_PREEMPTION: Final = {pb.PREEMPTION_ON: True, pb.PREEMPTION_OFF: False}
_LIMITS: Final = http.TaskLimits.DESCRIPTOR
_SCALARS: Final = Form(http.ScalarAmounts.DESCRIPTOR, _scalars)
_COLUMNS: Final = mapping(array(INTEGER))
_LINES: Final = Form(_COLUMNS, lambda wire: {each.name: list(each.per_mille) for each in wire})

# Times that stay numbers, in milliseconds since the epoch; other fields `_ms` are durations.
TIMES: Final = re.compile(r"(\A|_)(times?|now|since|submitted|placed|started|ended|modified)_ms")
# Values of types, wherever they are.
TYPES: Final[Mapping[str, Form]] = {
    "Constraint": Form(STRING, lambda wire: str(constraint_from_wire(wire))),
    "Reason": Form(STRING, _name_in(Reason)),
    "Resources": Form(http.Amount.DESCRIPTOR, amount_view),
    "Source": Form(STRING, _name_in(Source)),
    "TaskState": Form(STRING, _name_in(TaskState)),
    "GroupPart": Form({**STRING, "enum": [str(part) for part in GroupPart]}, _part_name),
    "TokenKind": Form(STRING, lambda number: _TOKEN_KINDS.get(number, str(number))),
}
# Values of single fields; of `_ms`, a time as text.
FIELDS: Final[Mapping[str, Form]] = {
    "AgentDescription.attributes": Form(mapping(STRING), _attributes),
    "Amount.ranges": Form(mapping(array(array(INTEGER)))),
    "Amount.sets": Form(mapping(array(STRING))),
    "Command.argv": Form(array(STRING), list, "null unless it was requested and the task has one."),
    "Command.shell": Form(STRING, about="as `command`."),
    "Command.secrets": Form(array(STRING), sorted, "names only."),
    "DrainRequest.grace": Form(DURATION),
    "GetHeatmapResponse.used": Form(
        _COLUMNS, lambda wire: {each.resource: list(each.per_mille) for each in wire}
    ),
    "GetHistoryResponse.others": Form(array(INTEGER), lambda line: list(line.per_mille)),
    "GetHistoryResponse.shares": _LINES,
    "GetHistoryResponse.used": _LINES,
    "Group.members": Form(array(STRING), sorted),
    "KillRequest.grace": Form(DURATION),
    "RoleChange.half_life": Form(DURATION),
    "ReservationRequest.every": Form({**STRING, "enum": ["", "day", "week"]}),
    "ReservationRequest.notice": Form(DURATION),
    "RoleChange.preemption": Form({**STRING, "enum": list(PREEMPTION)}),
    "RoleChange.reset": Form(array({**STRING, "enum": list(PARTS_OF_ROLE)})),
    "RoleSettings.budget": Form(
        or_null(STRING), _budget, "such as `cpus:1000/month/block`; null is none."
    ),
    "RoleSettings.guarantee": _SCALARS,
    "RoleSettings.limit": _SCALARS,
    "RoleSettings.preemption": Form(or_null(BOOLEAN), _PREEMPTION.get, "null is inherited."),
    "RoleSettings.resource_weights": Form(
        mapping(NUMBER), lambda wire: {each.name: _weight(each.milli) for each in wire}
    ),
    "RolesRequest.changes": Form(
        {**array(http.RoleChange.DESCRIPTOR), "minItems": 1, "maxItems": MOST_CHANGES}
    ),
    "Token.created_ms": Form(STRING, time_text),
    "Token.expires_ms": Form(STRING, time_text),
    "WhoAmIResponse.expires_ms": Form(STRING, time_text),
}
# Objects by their messages.
SHAPES: Final[Mapping[str, Shape]] = {
    "AgentRequest": Shape(required=""),
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
    "DrainRequest": Shape(required=""),
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
    "UnreserveRequest": Shape(required=""),
    "Isolation": Shape(nullable="image"),
    "KillRequest": Shape(required=""),
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
    "ReleaseRequest": Shape(required=""),
    "RoleChange": Shape(required="role"),
    "RoleMoved": Shape(keys="role", made={"role": Form(STRING, lambda moved: moved.after.role)}),
    "RoleView": Shape(
        "Role",
        "settings",
        "role weight weight_milli resource_weights guarantee limit preemption min_run_s"
        " half_life_s budget budget_used budget_used_ppm",
        made={
            "weight": Form(NUMBER, lambda role: _weight(_weight_milli(role))),
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
        " hold_id volumes preemption requeues",
        nullable="since_ms command shell secrets",
        made={
            "limits": Form(_LIMITS, lambda task: _limits(task.task)),
            "isolation": Form(
                or_null(task_pb2.Isolation.DESCRIPTOR),
                lambda task: _if_whole(task, task.task.isolation),
                "null unless it was requested.",
            ),
            "group": Form(
                or_null(task_pb2.TaskGroup.DESCRIPTOR),
                lambda task: task.task.group if task.task.HasField("group") else None,
                "null if it is in none.",
            ),
            "preemption": Form(
                or_null(task_pb2.TaskPreemption.DESCRIPTOR),
                lambda task: task.task.preemption if task.task.HasField("preemption") else None,
                "null unless it was requested.",
            ),
            "gang": Form(
                or_null(task_pb2.GangMember.DESCRIPTOR),
                lambda task: task.task.gang if task.task.HasField("gang") else None,
                "null if it is in none.",
            ),
            "labels": Form(
                or_null(array(task_pb2.Label.DESCRIPTOR)),
                lambda task: _if_whole(task, list(task.task.labels)),
                "null unless they were requested.",
            ),
        },
    ),
    "TeardownRequest": Shape(required=""),
    "UpdateRolesResponse": Shape("RolesChange"),
    "Usage": Shape(nullable="memory_peak_bytes pids_peak read_bytes written_bytes disk_bytes"),
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
