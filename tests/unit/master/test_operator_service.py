"""What the operator service asks of the core."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import FrozenInstanceError, dataclass, fields, is_dataclass
from typing import Any, cast, get_args

import pytest

from croupier.master.access.caller import Call, Caller, begin_call
from croupier.master.core.effects import Answer, Effect
from croupier.master.core.events import OperatorCommand
from croupier.master.core.framework_commands import TornDown
from croupier.master.core.role_commands import RolesMoved
from croupier.master.core.state import State
from croupier.master.core.step import Command, Event, on_operator_command
from croupier.master.services.operator import OperatorService
from croupier.model.errors import MAX_TEXT, InvalidRequest
from croupier.model.ids import FrameworkId
from croupier.model.principal import Principal, PrincipalName
from croupier.process.clock import SystemClock
from croupier.v1 import operator_pb2 as pb
from tests.harness.world import World


class Leading:
    """A leader whose core gives one answer; notes whether its state was read as well."""

    def __init__(self, answer: object) -> None:
        self.answer, self.reads = answer, 0

    async def ask(self, make: Callable[[int], object]) -> object:
        make(1)
        return self.answer

    async def read(self, query: Callable[[Any], object]) -> object:
        self.reads += 1
        return query(World().state)


class Peer:
    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"


def service(leading: Leading) -> OperatorService:
    unused: Any = None
    return OperatorService(cast("Any", leading), SystemClock(), "1", unused, unused, unused)


@pytest.mark.parametrize(("principal", "reads"), [("", 0), ("client/ada", 1)])
async def test_only_an_authenticated_command_reads_the_state_after_its_answer(
    principal: str, reads: int
) -> None:
    begin_call(Call(caller=Caller(Principal(PrincipalName(principal)))))
    moved = Leading(RolesMoved((), (), 0))
    await service(moved).UpdateRoles(pb.UpdateRolesRequest(), cast("Any", Peer()))
    torn = Leading(TornDown(FrameworkId("f"), "", 3))
    request = pb.TeardownFrameworkRequest(framework_id="f")
    assert (await service(torn).TeardownFramework(request, cast("Any", Peer()))).tasks == 3
    assert (moved.reads, torn.reads) == (reads, reads)


# Operator commands execute themselves and are answered once.


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
