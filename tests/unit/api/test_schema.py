"""Schemas of objects, made from their types."""

from __future__ import annotations

from typing import Literal, TypedDict

import pytest

from croupier.api.explanation import Explanation
from croupier.api.policy import Caller, Policy
from croupier.api.roles import RolesChange
from croupier.api.schema import Schemas
from croupier.api.tasks import Offer, Task
from croupier.api.tokens import Token


class Leaf(TypedDict):
    """A leaf.

    Attributes:
        size: in meters; None:
            unknown.
    """

    size: float | None
    kind: Literal["oak", "elm"]


class Tree(TypedDict):
    """A tree."""

    leaves: list[Leaf]
    first: Leaf | None
    names: dict[str, int]


def test_an_object_becomes_a_component() -> None:
    schemas = Schemas()
    assert schemas.of(Tree) == {"$ref": "#/components/schemas/Tree"}
    leaf = {"$ref": "#/components/schemas/Leaf"}
    assert schemas.components["Tree"]["properties"] == {
        "leaves": {"type": "array", "items": leaf},
        "first": {"anyOf": [leaf, {"type": "null"}]},
        "names": {"type": "object", "additionalProperties": {"type": "integer"}},
    }
    assert schemas.components["Leaf"] == {
        "type": "object",
        "description": "A leaf.",
        "properties": {
            "size": {"type": ["number", "null"], "description": "in meters; null: unknown."},
            "kind": {"type": "string", "enum": ["oak", "elm"]},
        },
        "required": ["kind", "size"],
        "additionalProperties": False,
    }


def test_a_type_that_json_lacks_is_an_error() -> None:
    with pytest.raises(TypeError, match="JSON has no"):
        Schemas().of(set[str])


def test_every_object_of_the_master_has_a_schema() -> None:
    schemas = Schemas()
    for kind in (Caller, Explanation, Offer, Policy, RolesChange, Task, Token):
        schemas.of(kind)
    # A description for every object; nothing of the making is left.
    assert all(each["description"] for each in schemas.components.values())
    assert not [name for name, each in schemas.components.items() if "x-module" in each]
