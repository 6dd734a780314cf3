"""What tasks asked for beside what their agents measured, in the usage ledger."""

from __future__ import annotations

from dataclasses import replace

from croupier.master.core import calls
from croupier.master.core.calls import Acknowledge
from croupier.master.core.effects import SessionId
from croupier.model.ids import AgentId, TaskId
from croupier.model.isolation import Usage
from croupier.model.limits import MIB
from croupier.model.preemption import TaskPreemption
from croupier.model.task import Reason, TaskState
from croupier.v1 import operator_pb2 as pb
from tests.harness.world import World, make_task, with_executor
from tests.unit.master.test_accounting import account, return_with, view

# Of 4 cpus for a minute, one was busy, and of 4 GiB a quarter was needed.
USED = Usage(cpu_ms=60_000, memory_peak=1024 * MIB, run_ms=60_000)
TASK = make_task("t1", "cpus:4;mem:4GB")


class Measured(World):
    """A cluster of one agent, with a framework that has launched one task."""

    def __init__(self, task_id: str = "t1", **about: object) -> None:
        super().__init__()
        self.host = self.agent("cpus:4;mem:8GB", agent_id="a1", features="requeue")
        self.session = self.framework("ads", name="train", suppressed=True)
        task = replace(TASK, task_id=TaskId(task_id), **about)  # type: ignore[arg-type]
        self.call(self.session, calls.Submit((task,)))
        self.owner = self.framework_id(self.session)

    def end(self, usage: Usage | None = USED, task_id: str = "t1") -> None:
        self.now += 60.0
        self.report(self.host, self.owner, task_id, TaskState.RUNNING, 1)
        self.report(self.host, self.owner, task_id, TaskState.FINISHED, 2, usage=usage)

    def acknowledge(self, session: SessionId, task_id: str = "t1") -> None:
        self.call(session, Acknowledge(((AgentId("a1"), TaskId(task_id), 2),)))


def columns(world: World, by: int = pb.USAGE_BY_ROLE) -> dict[str, dict[str, dict[str, float]]]:
    """Return what was asked for, measured and wasted, by name; in units times seconds."""
    return {
        each.name: {name: dict(getattr(each, name)) for name in ("asked", "measured", "wasted")}
        for each in view(world, by).usage
    }


WHOLE = {
    "asked": {"cpus": 240.0, "mem": 4096 * 60.0},
    "measured": {"cpus": 60.0, "mem": 1024 * 60.0},
    "wasted": {"cpus": 180.0, "mem": 3072 * 60.0},
}
NONE: dict[str, dict[str, float]] = {"asked": {}, "measured": {}, "wasted": {}}


def test_a_measured_task_counts_with_what_it_wasted_once_its_end_is_acknowledged() -> None:
    world = Measured(labels=(("cost-center", "team-1"),))
    world.end()
    assert columns(world) == {"ads": NONE}
    world.acknowledge(world.session)
    assert columns(world) == {"ads": WHOLE}
    account(world)
    assert columns(world, pb.USAGE_BY_LABEL) == {"team-1": WHOLE}
    assert columns(world, pb.USAGE_BY_FRAMEWORK)["train"] == WHOLE


def test_the_next_master_counts_an_end_that_was_not_acknowledged_once() -> None:
    world = Measured()
    world.end()
    account(world)
    world.restart()
    session = world.framework(
        "ads", name="train", framework_id=world.owner, client_id="c2", suppressed=True
    )
    world.host = return_with(world, "t1")
    world.end()
    world.acknowledge(session)
    account(world)
    assert columns(world)["ads"] == WHOLE
    world.restart()
    assert columns(world)["ads"] == WHOLE, "it is stored"


def test_nothing_is_shown_of_what_was_not_measured_or_only_in_part() -> None:
    for usage in (
        None,
        # Of an agent of an earlier release, and of the watch of disks alone.
        replace(USED, run_ms=0),
        Usage(disk_bytes=7, run_ms=60_000),
    ):
        world = Measured()
        world.end(usage)
        world.acknowledge(world.session)
        assert columns(world)["ads"] == NONE, usage


def test_what_an_executor_uses_is_of_its_tasks_too() -> None:
    world = World()
    host = world.agent("cpus:4;mem:8GB", agent_id="a1", features="executors")
    session = world.framework("ads")
    world.accept(session, with_executor(TASK))
    owner = world.framework_id(session)
    world.now = 60.0
    world.report(host, owner, "t1", TaskState.RUNNING, 1)
    world.report(host, owner, "t1", TaskState.FINISHED, 2, usage=USED)
    world.call(session, Acknowledge(((AgentId("a1"), TaskId("t1"), 2),)))
    assert columns(world)["ads"] == NONE


def test_a_task_that_used_more_than_it_asked_for_hides_no_waste_of_another() -> None:
    world = Measured()
    world.end()
    world.acknowledge(world.session)
    world.call(world.session, calls.Submit((make_task("t2", "cpus:1;mem:4GB"),)))
    world.end(replace(USED, cpu_ms=240_000), "t2")
    world.acknowledge(world.session, "t2")
    found = columns(world)["ads"]
    assert found["asked"]["cpus"] == 300.0
    assert found["measured"]["cpus"] == 300.0
    assert found["wasted"]["cpus"] == 180.0


def test_each_run_of_a_requeued_task_counts() -> None:
    world = Measured(preemption=TaskPreemption(requeue=True))
    task = world.state.frameworks[world.owner].tasks[TaskId("t1")]
    world.report(world.host, world.owner, "t1", TaskState.RUNNING, 1)
    world.now = 60.0
    task.request_kill(None, Reason.PREEMPTED)
    world.report(
        world.host,
        world.owner,
        "t1",
        TaskState.KILLED,
        2,
        reason=Reason.PREEMPTED,
        usage=USED,
    )
    assert task.requeue is not None
    assert task.requeue.count == 1
    assert columns(world)["ads"] == WHOLE


def test_the_account_of_a_large_task_outlives_its_description() -> None:
    world = Measured(
        labels=(("cost-center", "team-1"), ("note", "x")),
        command=replace(TASK.command, shell="x" * 20_000),
    )
    world.end()
    world.acknowledge(world.session)
    assert columns(world, pb.USAGE_BY_LABEL)["team-1"] == WHOLE
