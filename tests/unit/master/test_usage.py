"""The usage of a task: from its agent's last update, and of a live task as its agent answers."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from croupier.api.objects import as_object
from croupier.master.core import calls
from croupier.master.core.effects import SessionId
from croupier.master.core.events import AgentReported
from croupier.master.core.records import TaskRecord
from croupier.master.eventlog.codec import CODEC
from croupier.master.services.task_files import use_to_wire
from croupier.master.services.views import view_task
from croupier.master.store.rows import decode, encode
from croupier.model.errors import Unavailable
from croupier.model.ids import DEFAULT_ROLE, TaskId
from croupier.model.isolation import Limits, Usage
from croupier.model.task import Reason, Source, TaskState, TaskStatus
from croupier.wire.task import LIMITS, USAGE
from tests.harness.world import World, make_task

USED = Usage(
    cpu_ms=1500,
    memory_peak=9_000_000,
    pids_peak=3,
    read_bytes=10,
    written_bytes=20,
    disk_bytes=4096,
)
TASK = replace(make_task("t1", "cpus:1;mem:8MB"), max_completion_ms=60_000)


def ended(world: World) -> TaskStatus:
    """Run a task that its memory limit ends; return the last update of its agent."""
    agent = world.agent("cpus:4;mem:4GB")
    session = world.framework()
    assert world.accept(session, TASK).tasks[0].error is None
    owner = world.framework_id(session)
    world.report(agent, owner, "t1", TaskState.RUNNING, 1)
    status = TaskStatus(
        owner,
        TaskId("t1"),
        world.agent_id(agent),
        TaskState.FAILED,
        Source.EXECUTOR,
        Reason.MEMORY_LIMIT,
        "it needed more memory than its limit of 8 MiB",
        sequence=2,
        signal=9,
        usage=USED,
    )
    world.do(AgentReported(agent, (status,)))
    assert world.updates(session)[-1] == status
    world.call(session, calls.Acknowledge(((world.agent_id(agent), TaskId("t1"), 2),)))
    return status


def test_operators_see_the_usage_and_limits_of_an_ended_task() -> None:
    world = World()
    status = ended(world)
    (kept,) = world.state.ended
    assert kept.status == status
    for with_command in (True, False):
        view = view_task(kept, with_command=with_command)
        assert USAGE.from_wire(view.status.usage) == USED
        assert Reason(view.status.reason) is Reason.MEMORY_LIMIT
        assert view.task.max_completion_ms == 60_000


def test_a_slimmed_task_keeps_its_limits() -> None:
    info = replace(
        TASK, labels=(("k", "v" * 1000), ("l", "v" * 1000)), limits=Limits(mem=9_000, pids=5)
    )
    slim = info.slimmed()
    assert slim.labels == ()
    assert slim.limits == info.limits
    world = World()
    status = ended(world)
    (kept,) = world.state.ended
    view = view_task(replace(kept, info=info, status=status).slimmed())
    assert LIMITS.from_wire(view.task.limits) == info.limits
    assert USAGE.from_wire(view.status.usage) == USED


def test_reconcile_repeats_the_usage() -> None:
    world = World()
    agent = world.agent("cpus:4;mem:4GB")
    session = world.framework()
    world.accept(session, TASK)
    ids = (world.framework_id(session), TaskId("t1"), world.agent_id(agent))
    status = TaskStatus(*ids, TaskState.FINISHED, Source.EXECUTOR, sequence=1, usage=USED)
    world.do(AgentReported(agent, (status,)))
    world.call(session, calls.Reconcile((TaskId("t1"),)))
    assert world.updates(session)[-1].usage == USED


def test_a_record_and_an_event_hold_the_usage() -> None:
    status = ended(World())
    record = TaskRecord(
        status.framework_id, TASK, status.agent_id, DEFAULT_ROLE, master_status=status
    )
    row = encode(record)
    assert row.body is not None
    assert decode(row.kind, row.body) == record
    event = AgentReported(SessionId(1), (status,))
    document = CODEC.encoder(AgentReported)(event)
    assert CODEC.decoder(AgentReported)(document) == event


# The use of a live task, as its agent answers.


def test_an_agent_tells_what_a_task_has_used_and_may_use() -> None:
    bounds = {"memory_bytes": 2**30, "pids": 20, "cpus": 1.5, "disk_bytes": None}
    usage = asdict(Usage(1500, 2**20, 3, 4, 5, 6))
    use = as_object(use_to_wire({"usage": usage, "limits": {**bounds, "completion_ms": 1000}}))
    assert use == {
        "usage": {
            "cpu_s": 1.5,
            "memory_peak_bytes": 2**20,
            "pids_peak": 3,
            "read_bytes": 4,
            "written_bytes": 5,
            "disk_bytes": 6,
            "run_s": None,
        },
        "limits": {
            "cpus": 1500,
            "mem": 1_024_000,
            "disk": None,
            "pids": 20,
            "files": None,
            "max_completion_s": 1.0,
        },
    }


def test_an_agent_may_measure_nothing() -> None:
    use = as_object(use_to_wire({"usage": None, "limits": {"pids": 7}}))
    assert (use["usage"], use["limits"]["pids"]) == (None, 7)
    assert as_object(use_to_wire({}))["limits"]["pids"] is None


@pytest.mark.parametrize(
    "found",
    [{"usage": {"cpu_ms": -1}}, {"usage": {"cpu_ms": "x"}}, {"usage": 1}, {"limits": [1]},
     {"usage": {"cpu_ms": float("inf")}}, {"usage": {"cpu_ms": 2**64}}, {"usage": [1]},
     {"limits": {"pids": 2**63}}, {"limits": {"completion_ms": "x"}}]
)  # fmt: skip
def test_a_false_agent_is_not_believed(found: Any) -> None:
    with pytest.raises(Unavailable, match="in another form"):
        use_to_wire(found)
