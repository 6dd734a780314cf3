"""Objects are made of the fields of messages by their descriptors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from croupier.api import forms, shapes
from croupier.api import http_pb2 as http
from croupier.api.objects import as_object, keys_of
from croupier.v1 import access_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.v1.resources_pb2 import Attribute, Constraint, NamedRanges, Range, Resources
from tests.harness.golden import check_golden

# Answers that clients get, with all their parts.
SHOWN = (
    access_pb2.GetPolicyResponse,
    access_pb2.Token,
    access_pb2.WhoAmIResponse,
    http.AgentAction,
    http.CallerAndActions,
    http.KillAction,
    http.MasterState,
    http.TeardownAction,
    pb.ExplainResponse,
    pb.FitResponse,
    pb.GetHeatmapResponse,
    pb.GetHistoryResponse,
    pb.GetOverviewResponse,
    pb.GetTaskUseResponse,
    pb.ListMastersResponse,
    pb.ListOffersResponse,
    pb.ListTaskFilesResponse,
    pb.UpdateRolesResponse,
    pb.WatchEventsResponse,
)
# Messages whose fields have a form that no other value fits.
SPECIAL: dict[str, Any] = {
    "Attribute": Attribute(
        name="rack", ranges=NamedRanges(name="rack", ranges=[Range(begin=1, end=4)])
    ),
    "Constraint": Constraint(attribute="rack", operator=Constraint.OPERATOR_EQUALS, value="r1"),
    "Resources": Resources(
        cpus_milli=1500,
        mem_milli=2_048_000,
        ranges=[NamedRanges(name="ports", ranges=[Range(begin=5, end=9)])],
    ),
}


def filled(kind: Any) -> Any:
    """Return a message that has a value in every field."""
    message = kind()
    for field in message.DESCRIPTOR.fields:
        part = field.message_type
        if part is not None and part.GetOptions().map_entry:
            getattr(message, field.name)["b"] = getattr(message, field.name)["a"] = _value(
                part.fields_by_name["value"]
            )
        elif field.is_repeated:
            getattr(message, field.name).extend([_value(field)])
        elif part is not None:
            getattr(message, field.name).CopyFrom(_value(field))
        else:
            setattr(message, field.name, _value(field))
    return message


def _value(field: FieldDescriptor) -> Any:
    if field.message_type is not None:
        kind: Any = field.message_type
        return SPECIAL.get(kind.name) or filled(kind._concrete_class)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return field.name.encode()
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return field.name
    return field.cpp_type == FieldDescriptor.CPPTYPE_BOOL or (1 if field.enum_type else 1234)


def test_objects_are_as_they_were_accepted(request: pytest.FixtureRequest) -> None:
    objects = {kind.DESCRIPTOR.name: [as_object(filled(kind)), as_object(kind())] for kind in SHOWN}
    lines = [f"{json.dumps(name)}: {json.dumps(each)}" for name, each in objects.items()]
    check_golden(request, Path(__file__).parent / "objects.json", "{" + ",\n".join(lines) + "}\n")


def test_keys_are_fields_in_their_units() -> None:
    drain = pb.Drain(done=True, grace_ms=0, blockers=[pb.DrainBlocker(reason="busy")])
    assert as_object(drain) == {
        "done": True,
        "grace_s": 0.0,
        "tasks_left": 0,
        "estimate_s": None,
        "blockers": [{"framework_id": "", "task_id": "", "reason": "busy"}],
    }


def test_the_first_message_with_a_field_has_the_key() -> None:
    task = pb.TaskView(framework_id="f1")
    task.status.framework_id = "f2"
    task.status.message = "over"
    found = as_object(task)
    assert (found["framework_id"], found["message"]) == ("f1", "over")


def test_a_state_that_only_newer_masters_know_is_a_number() -> None:
    task = pb.TaskView()
    task.status.state = 99  # type: ignore[assignment]
    assert as_object(task)["state"] == "99"


def test_tables_name_only_fields_that_there_are() -> None:
    known: dict[str, Descriptor] = {
        message.name: message
        for module in (access_pb2, pb, http)
        for file in (*module.DESCRIPTOR.dependencies, module.DESCRIPTOR)
        for message in file.message_types_by_name.values()
    }
    for name, shape in shapes.SHAPES.items():
        keys = {key.name for key in keys_of(known[name])}
        assert keys >= set(shape.nullable.split()), name
        assert not keys & set(shape.without.split()), name
    for name in forms.FIELDS:
        message, _, field = name.partition(".")
        assert field in known[message].fields_by_name, name
