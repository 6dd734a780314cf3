"""Records that are intact and contradict each other are refused before a term begins."""

from __future__ import annotations

import pytest

from croupier.master.allocator import Allocator, Rules, policies
from croupier.master.core.access_records import TokenId, TokenKind, TokenRecord
from croupier.master.core.records import FrameworkRecord, QueuePlace, Registry, TaskRecord
from croupier.master.core.settings import Settings
from croupier.master.core.state_recovery import recover_state
from croupier.model.demand import Placement
from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.principal import PrincipalName
from croupier.model.resources import Resources
from croupier.model.task import Command, TaskInfo


def recover(registry: Registry) -> None:
    recover_state(registry, "m1", Settings(), Allocator(policies.make("drf", 0), Rules(), {}), 0.0)


def test_a_framework_in_a_role_twice() -> None:
    registry = Registry()
    registry.apply(FrameworkRecord(FrameworkId("f"), "f", (Role("a"), Role("a")), 60.0))
    with pytest.raises(InvalidRequest, match="framework 'f' is in a role twice"):
        recover(registry)


def test_a_task_queued_in_a_role_that_its_framework_lacks() -> None:
    registry = Registry()
    registry.apply(FrameworkRecord(FrameworkId("f"), "f", (Role("a"),), 60.0))
    info = TaskInfo(TaskId("t"), Command(shell="true"), Resources.parse("cpus:1"))
    place = QueuePlace(Placement(), 1, 0)
    registry.apply(TaskRecord(FrameworkId("f"), info, AgentId(""), Role("b"), queued=place))
    with pytest.raises(InvalidRequest, match="task 't' of framework 'f' is queued in role 'b'"):
        recover(registry)


def test_two_tokens_of_one_agent() -> None:
    registry = Registry()
    for number in range(2):
        registry.apply(
            TokenRecord(
                TokenId(f"{number:08x}"),
                TokenKind.AGENT,
                PrincipalName("agent/a"),
                "0" * 64,
                created_ms=0,
            )
        )
    with pytest.raises(InvalidRequest, match="two tokens are bound to one agent"):
        recover(registry)
