"""Operator commands execute themselves and are answered once."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import FrozenInstanceError, dataclass, fields, is_dataclass
from typing import get_args

import pytest

from croupier.master.core.effects import Answer, Effect
from croupier.master.core.operator_command import OperatorCommand, on_operator_command
from croupier.master.core.state import State
from croupier.master.core.step import Command, Event
from croupier.model.errors import MAX_TEXT, InvalidRequest
from tests.harness.world import World


@dataclass(frozen=True, slots=True)
class Refused(OperatorCommand[int]):
    """A command that is refused with a long text."""

    def execute(self, state: State, now: float) -> Generator[Effect, None, int]:
        raise InvalidRequest("x" * 10_000)
        yield  # type: ignore[unreachable]


def test_refusal_is_answered_shortened() -> None:
    (answer,) = on_operator_command(World().state, Refused(3), 0.0)
    assert isinstance(answer, Answer)
    assert answer.request == 3
    assert isinstance(answer.result, InvalidRequest)
    assert len(str(answer.result)) <= MAX_TEXT + 3


@pytest.mark.parametrize("command", get_args(Command))
def test_every_command_is_a_frozen_value_and_an_event(command: type) -> None:
    assert issubclass(command, OperatorCommand)
    assert command in get_args(Event)
    assert is_dataclass(command)
    assert fields(command)[0].name == "request"
    with pytest.raises((FrozenInstanceError, TypeError)):
        command.__setattr__(object.__new__(command), "request", 1)
