"""Objects are made of the fields of messages by the hints of their `TypedDict`."""

from __future__ import annotations

from typing import TypedDict

import pytest

from croupier.api.objects import as_object
from croupier.api.tasks import Task, task_view
from croupier.v1 import operator_pb2 as pb


class Part(TypedDict):
    reason: str


class Kinds(TypedDict):
    done: bool
    grace_s: float | None
    estimate_s: float | None
    blockers: list[Part]


class Unknown(TypedDict):
    colour: str


def test_keys_are_fields_in_their_units() -> None:
    drain = pb.Drain(done=True, grace_ms=0, blockers=[pb.DrainBlocker(reason="busy")])
    assert as_object(Kinds, drain) == {
        "done": True,
        "grace_s": 0.0,
        "estimate_s": None,
        "blockers": [{"reason": "busy"}],
    }


def test_the_first_message_with_a_field_has_the_key() -> None:
    task = pb.TaskView(framework_id="f1")
    task.status.framework_id = "f2"
    task.status.message = "over"
    found = task_view(task)
    assert (found["framework_id"], found["message"]) == ("f1", "over")
    assert list(found) == list(Task.__annotations__)


def test_a_key_is_given_or_a_field() -> None:
    assert as_object(Unknown, pb.Drain(), colour="red") == {"colour": "red"}
    with pytest.raises(TypeError, match="colour of Unknown is no field"):
        as_object(Unknown, pb.Drain())
