"""JSON forms of single values: of the types and fields whose values are not shown as they are.

Rule: `objects.py` says which units differ; all others are in the tables here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from croupier.api import http_pb2 as http
from croupier.api.times import DURATION, time_text
from croupier.model.attributes import attribute_text
from croupier.model.reservation import PERIODS
from croupier.model.roles import format_amounts
from croupier.model.scalar import format_milli
from croupier.model.task import Reason, Source, TaskState
from croupier.model.task_group import GroupPart
from croupier.v1 import access_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.v1.resources_pb2 import NamedScalar, Resources
from croupier.wire.resources import attributes_from_wire, constraint_from_wire, resources_from_wire

NumberT = TypeVar("NumberT", bound=int)
Schema = dict[str, Any]
STRING: Final[Schema] = {"type": "string"}
INTEGER: Final[Schema] = {"type": "integer"}
NUMBER: Final[Schema] = {"type": "number"}
BOOLEAN: Final[Schema] = {"type": "boolean"}


def as_it_is(value: Any) -> Any:
    """Return the value unchanged."""
    return value


def words_of(values: Iterable[tuple[str, NumberT]], prefix: str) -> dict[str, NumberT]:
    """Return the values of an enumeration by their words, without the unspecified one."""
    return {name.removeprefix(prefix).lower(): number for name, number in values if number}


# What a request may say of a role.
PREEMPTION: Final = {"on": True, "off": False, "inherit": None}
PARTS_OF_ROLE: Final = words_of(pb.RoleChange.Part.items(), "PART_")
MOST_CHANGES: Final = 100
USAGE_BY: Final = words_of(pb.UsageBy.items(), "USAGE_BY_")


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


def weight(milli: int) -> float:
    """Return a weight as a number."""
    return float(format_milli(milli))


def _budget(wire: Any) -> str | None:
    if not wire.amounts:
        return None
    amounts = {each.name: each.milli for each in wire.amounts}
    return f"{format_amounts(amounts)}/{wire.period}/{wire.action}"


def _attributes(wire: Any) -> dict[str, str]:
    return {name: attribute_text(value) for name, value in attributes_from_wire(wire).items()}


def _named(names: Mapping[int, str], schema: Schema = STRING) -> Form:
    """Return the form of an enumeration; a number without a name is shown as it is."""
    return Form(schema, lambda number: names.get(number) or str(number))


def _name_in(kind: type[TaskState | Reason | Source]) -> Form:
    return _named({each.value: each.name for each in kind})


_PARTS: Final = {part.value: str(part) for part in GroupPart}
_TOKEN_KINDS: Final = words_of(access_pb2.TokenKind.items(), "TOKEN_KIND_")
_PREEMPTION: Final = {pb.PREEMPTION_ON: True, pb.PREEMPTION_OFF: False}
_SCALARS: Final = Form(http.ScalarAmounts.DESCRIPTOR, _scalars)
_COLUMNS: Final = mapping(array(INTEGER))
_LINES: Final = Form(_COLUMNS, lambda wire: {each.name: list(each.per_mille) for each in wire})

# Times that stay numbers, in milliseconds since the epoch; other fields `_ms` are durations.
TIMES: Final = re.compile(r"(\A|_)(times?|now|since|submitted|placed|started|ended|modified)_ms")
# Values of types, wherever they are.
TYPES: Final[Mapping[str, Form]] = {
    "Constraint": Form(STRING, lambda wire: str(constraint_from_wire(wire))),
    "Reason": _name_in(Reason),
    "Resources": Form(http.Amount.DESCRIPTOR, amount_view),
    "Source": _name_in(Source),
    "TaskState": _name_in(TaskState),
    "GroupPart": _named(_PARTS, {**STRING, "enum": list(_PARTS.values())}),
    "TokenKind": _named({number: word for word, number in _TOKEN_KINDS.items()}),
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
    "ReservationRequest.every": Form({**STRING, "enum": list(PERIODS)}),
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
        mapping(NUMBER), lambda wire: {each.name: weight(each.milli) for each in wire}
    ),
    "RolesRequest.changes": Form(
        {**array(http.RoleChange.DESCRIPTOR), "minItems": 1, "maxItems": MOST_CHANGES}
    ),
    "Token.created_ms": Form(STRING, time_text),
    "Token.expires_ms": Form(STRING, time_text),
    "WhoAmIResponse.expires_ms": Form(STRING, time_text),
}
