"""Refusals are not logged without bound, and ranges of tasks are added up once."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from croupier.master.core.events import AgentTask
from croupier.master.core.facts import AgentRefused
from croupier.master.log import REFUSALS_AT_ONCE
from croupier.master.metrics.counters import Metrics
from croupier.model import ranges as rng
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Command, TaskInfo, TaskState, TaskStatus
from tests.harness.invariants import check_state
from tests.harness.world import World


def test_log_of_refusals_is_throttled(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = Metrics(CollectorRegistry())
    for number in range(1000):
        metrics.happened(AgentRefused(AgentId(""), f"h{number}", "why"))
    assert 1 <= capsys.readouterr().out.count("agent_refused") <= REFUSALS_AT_ONCE


MANY = 1_000


def running(number: int) -> AgentTask:
    port = Resources({"cpus": 10}, {"ports": ((2 * number, 2 * number),)})
    info = TaskInfo(TaskId(f"t{number}"), Command(("true",)), port)
    status = TaskStatus(FrameworkId("f"), info.task_id, AgentId("a"), TaskState.RUNNING, sequence=1)
    return AgentTask(FrameworkId("f"), info, status)


def test_registering_is_linear_in_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    looked_at: list[int] = []
    for name in ("union", "difference", "contains"):
        original = getattr(rng, name)

        def counted(*several: rng.Ranges, original: object = original) -> object:
            looked_at.append(sum(map(len, several)))
            assert callable(original)
            return original(*several)

        monkeypatch.setattr(rng, name, counted)
    tasks = tuple(map(running, range(MANY)))
    total = Resources({"cpus": 1_000_000, "mem": 1_000_000}, {"ports": ((0, 100_000),)})
    for session in range(2):
        agent = world.agent(str(total), agent_id="a", tasks=tasks)
        assert agent not in world.closed, session
        free = world.state.allocator.queries.free(AgentId("a"))
        assert len(free.ranges["ports"]) == MANY
    # A few steps of a registration visit every range; before there were a thousand such steps.
    assert sum(looked_at) < 40 * MANY
    monkeypatch.undo()
    check_state(world.state)
