"""The kinds of resources in a cluster are bounded; only agents with new kinds are refused."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from croupier.master.core.events import AgentTask
from croupier.master.core.facts import AgentRefused
from croupier.master.log import REFUSALS_AT_ONCE
from croupier.master.metrics.counters import Metrics
from croupier.master.services.views import view_master
from croupier.model import ranges as rng
from croupier.model.errors import Conflict
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Command, TaskInfo, TaskState, TaskStatus
from croupier.wire.resources import resources_from_wire
from tests.harness.invariants import check_state
from tests.harness.world import World

PLAIN = "cpus:4;mem:4GB"


def invented(count: int, prefix: str = "a") -> str:
    kinds = (f"{prefix}{number}:1" for number in range(count))
    return ";".join((PLAIN, *kinds))


def test_agents_with_known_kinds_are_never_refused() -> None:
    world = World()
    world.agent(invented(59), "full")
    for number, resources in enumerate(
        (PLAIN, invented(59), invented(7), PLAIN + ";gpus:1;disk:1GB;ports:[1-9]")
    ):
        session = world.agent(resources, f"h{number}")
        assert session in world.state.peers, resources


def test_agent_with_a_new_kind_is_refused_and_reported() -> None:
    world = World()
    world.agent(invented(59), "full")
    late = world.agent(PLAIN + ";fpgas:1;tpus:2", "late", agent_id="A7")
    error = world.closed[late]
    assert isinstance(error, Conflict)
    assert "at most 64 kinds of resources, and no room for fpgas, tpus," in str(error)
    assert AgentRefused(AgentId("A7"), "late", str(error)) in world.facts
    assert world.agent(PLAIN, "late") in world.state.peers


def test_kinds_of_a_gone_agent_do_not_count() -> None:
    world = World()
    full = world.agent(invented(59), "full")
    world.end_session(full)
    assert world.agent(PLAIN + ";fpgas:1") not in world.state.peers
    world.pass_time(76.0)
    assert world.agent(PLAIN + ";fpgas:1") in world.state.peers


def test_registering_again_does_not_count_own_kinds_twice() -> None:
    world = World()
    first = world.agent_id(world.agent(invented(59)))
    assert world.agent(invented(59, "b"), agent_id=first) in world.state.peers


@pytest.mark.parametrize("more", ["x:[1-2]", "x:{a,b}"])
def test_ranges_and_sets_count_too(more: str) -> None:
    world = World()
    world.agent(invented(59) + ";ports:[1-9]")
    assert world.agent(f"{PLAIN};{more}") not in world.state.peers
    assert world.agent(PLAIN + ";gpus:1;disk:1GB") in world.state.peers
    total = resources_from_wire(view_master(world.state, 0.0).total)
    assert len({*total.scalars, "ports"}) == 64


def test_log_of_refusals_is_throttled(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = Metrics(CollectorRegistry())
    for number in range(1000):
        metrics.happened(AgentRefused(AgentId(""), f"h{number}", "why"))
    assert 1 <= capsys.readouterr().out.count("agent_refused") <= REFUSALS_AT_ONCE


# Ranges of an agent's tasks are added up once.


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
