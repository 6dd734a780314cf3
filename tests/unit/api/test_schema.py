"""Schemas of objects, made from messages and the comments in `.proto`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from croupier.api import http_pb2 as http
from croupier.api.forms import array, or_null
from croupier.api.schema import Schemas
from croupier.master.web.routes import ROUTES, document
from croupier.v1 import access_pb2, operator_pb2, resources_pb2
from tests.harness.golden import check_golden


def test_the_document_is_as_it_was_accepted(request: pytest.FixtureRequest) -> None:
    found = document(ROUTES, "0.0.0")
    parts = {"paths": found.pop("paths"), **found.pop("components"), "info": found}
    lines = [
        f"{json.dumps(f'{part} {name}')}: {json.dumps(each)}"
        for part, named in parts.items()
        for name, each in named.items()
    ]
    check_golden(request, Path(__file__).parent / "openapi.json", "{" + ",\n".join(lines) + "}\n")


def test_an_object_becomes_a_component() -> None:
    schemas = Schemas()
    reference = {"$ref": "#/components/schemas/Drain"}
    assert schemas.of(operator_pb2.Drain) == reference
    assert schemas.of(or_null(array(operator_pb2.Drain.DESCRIPTOR))) == {
        "anyOf": [{"type": "array", "items": reference}, {"type": "null"}]
    }
    drain = schemas.components["Drain"]
    assert drain["description"] == "The progress of draining an agent."
    assert drain["required"] == ["blockers", "done", "estimate_s", "grace_s", "tasks_left"]
    assert drain["properties"]["grace_s"] == {
        "type": ["number", "null"],
        "description": "the longest grace of a task; null: each has its own.",
    }
    assert list(schemas.components) == ["Drain", "DrainBlocker"]


def test_a_request_may_leave_optional_keys_out() -> None:
    schemas = Schemas()
    schemas.of(http.RolesRequest)
    assert schemas.components["RolesRequest"]["required"] == ["changes"]
    assert schemas.components["RoleChange"]["properties"]["weight"]["type"] == "number"


def test_two_objects_of_one_name_are_an_error() -> None:
    schemas = Schemas()
    schemas.of(http.Error)
    with pytest.raises(TypeError, match="two objects are called"):
        schemas.of(operator_pb2.DESCRIPTOR.pool.FindMessageTypeByName("croupier.v1.Error"))


@pytest.mark.parametrize("kind", [access_pb2.GetPolicyResponse, access_pb2.Token])
def test_objects_of_commands_alone_have_a_schema(kind: type) -> None:
    schemas = Schemas()
    schemas.of(kind)
    assert all(each["description"] for each in schemas.components.values())


def test_an_amount_is_an_object() -> None:
    schemas = Schemas()
    schemas.of(operator_pb2.AgentView)
    total = schemas.components["Agent"]["properties"]["total"]
    assert total == {"$ref": "#/components/schemas/Amount"}
    assert resources_pb2.Resources.DESCRIPTOR.name not in schemas.components
