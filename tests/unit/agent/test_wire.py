from __future__ import annotations

from functools import partial

import pytest

from croupier.agent.core import events as ev
from croupier.agent.core.effects import Checkpoint
from croupier.agent.core.events import Now
from croupier.agent.core.records import AcknowledgedRecord, AgentRecord
from croupier.agent.core.recovery import recovered
from croupier.agent.core.state import AgentState
from croupier.agent.core.step import step
from croupier.agent.wire import PAGE_BYTES, SLIM_BYTES, order_from_wire, parts_of, register_to_wire
from croupier.model.agent_orders import AcknowledgeUpdate, KillTask, LaunchTask
from croupier.model.errors import InvalidRequest, ProtocolViolation
from croupier.model.executor import ExecutorSpec
from croupier.model.gang import GangMember
from croupier.model.ids import DEFAULT_ROLE, AgentId, FrameworkId, HoldId, Role, TaskId
from croupier.model.isolation import Feature
from croupier.model.preemption import TaskPreemption
from croupier.model.resources import Resources
from croupier.model.task import Command, Reason, TaskInfo, TaskState
from croupier.model.task_checks import MAX_GRACE_MS, MAX_LABEL, MAX_LABELS
from croupier.model.volume import VolumeMount
from croupier.net.transport import MAX_MESSAGE_BYTES
from croupier.v1 import agent_pb2 as pb
from croupier.v1 import task_pb2
from croupier.wire.task import status_to_wire, task_from_wire, task_to_wire

F, T = FrameworkId("F1"), TaskId("t1")
WHO = pb.Register(hostname="host", http_address="host:1", version="1.0", boot_id="boot")


def test_register_carries_everything_that_the_agent_knows() -> None:
    state = AgentState.of(Resources.parse("cpus:4"), AgentId("A1"))
    info = TaskInfo(T, Command(("sleep", "1")), Resources.parse("cpus:1"))
    for event in (
        LaunchTask(F, info, Role("ads/prod")),
        ev.Started((F, T), 7),
        AcknowledgeUpdate(F, T, 1),
    ):
        step(state, event, Now(10.0, 0))
    identity = pb.Register(sent_ms=12_500)
    identity.MergeFrom(WHO)
    (report,) = register_to_wire(identity, state)
    register = report.register
    (task,) = register.tasks
    assert task.age_ms == 2_500
    assert task.role == "ads/prod"
    assert (register.agent_id, register.resources.cpus_milli) == ("A1", 4000)
    assert list(task.task.command.argv) == ["sleep", "1"]
    assert task.latest.state == task_pb2.TASK_RUNNING
    assert [status.sequence for status in task.unacknowledged] == [2]


def test_register_carries_the_newest_master_and_a_loss_of_records() -> None:
    state = recovered(
        [AgentRecord(AgentId("A1"), "", 7, incomplete=True, cluster="c")], Resources.parse("cpus:4")
    )
    (report,) = register_to_wire(WHO, state)
    register = report.register
    assert (register.master_epoch, register.cluster, register.incomplete) == (7, "c", True)


def test_orders_carry_the_epoch_of_the_framework() -> None:
    info = TaskInfo(T, Command(("true",)), Resources.parse("cpus:1"))
    launch = pb.LaunchTask(framework_id=F, task=task_to_wire(info), framework_epoch=3)
    assert order_from_wire(pb.Order(launch=launch)) == LaunchTask(
        F, info, DEFAULT_ROLE, framework_epoch=3
    )
    kill = order_from_wire(pb.Order(kill=pb.KillTask(framework_id=F, task_id=T, framework_epoch=4)))
    assert kill == KillTask(F, T, None, Reason.NONE, 4)


def test_register_names_what_the_agent_can_enforce() -> None:
    state = AgentState.of(Resources.parse("cpus:4"))
    state.features = frozenset({Feature.MEMORY, Feature.CPU_WEIGHT})
    (register,) = register_to_wire(WHO, state)
    assert list(register.register.isolation) == ["cpu-weight", "memory"]


def test_a_large_register_leaves_commands_out() -> None:
    state = AgentState.of(Resources.parse("cpus:4"))
    for n in range(20):
        command = Command(shell="x" * 100_000)
        info = TaskInfo(TaskId(f"t{n}"), command, Resources.parse("cpus:0.1"))
        step(state, LaunchTask(F, info, DEFAULT_ROLE), Now(0, 0))
    (register,) = register_to_wire(WHO, state)
    assert register.ByteSize() < SLIM_BYTES
    assert len(register.register.tasks) == 20
    assert register.register.tasks[0].task.resources.cpus_milli == 100


def test_a_large_register_leaves_names_and_labels_out() -> None:
    state = AgentState.of(Resources.parse("cpus:100"))
    labels = tuple((f"{n}" + "k" * 1000, "v" * 1000) for n in range(64))
    hosts = tuple(f"h{n}" for n in range(100))
    for n in range(100):
        info = TaskInfo(
            TaskId(f"t{n}"),
            Command(("true",)),
            Resources.parse("cpus:1"),
            name="n" * 4000,
            labels=labels,
            max_completion_ms=1000,
            gang=GangMember("g", n, 100, hosts=hosts),
            preemption=TaskPreemption(min_run_ms=5),
            volumes=(VolumeMount(HoldId("v"), "/data"),),
        )
        step(state, LaunchTask(F, info, DEFAULT_ROLE), Now(0, 0))
    (register,) = register_to_wire(WHO, state)
    assert register.ByteSize() < SLIM_BYTES
    tasks = [task_from_wire(each.task) for each in register.register.tasks]
    # What decisions depend on is still there.
    assert [each.gang for each in tasks] == [GangMember("g", n, 100) for n in range(100)]
    kept = {(each.max_completion_ms, each.preemption.min_run_ms, each.volumes) for each in tasks}
    assert kept == {(1000, 5, info.volumes)}


def test_a_register_of_many_tasks_comes_in_pages() -> None:
    state = AgentState.of(Resources.parse("cpus:100"))
    for n in range(5_000):
        info = TaskInfo(
            TaskId(f"t{n}" + "x" * 200), Command(("true",)), Resources.parse("cpus:0.01")
        )
        step(state, LaunchTask(F, info, DEFAULT_ROLE), Now(0, 0))
    *pages, last = register_to_wire(WHO, state)
    assert len(pages) > 3
    assert all(page.ByteSize() < 2 * PAGE_BYTES for page in pages)
    assert last.register.pages == len(pages)
    assert last.register.resources.cpus_milli == 100_000
    assert not last.register.tasks
    listed = [task.task.task_id for page in pages for task in page.register_page.tasks]
    assert listed == [key[1] for key in state.tasks]


def test_large_labels_of_an_executor_fit_into_every_report() -> None:
    state = AgentState.of(Resources.parse("cpus:4"), AgentId("A1"))
    state.features = frozenset({Feature.EXECUTORS})
    one = Resources.parse("cpus:1")
    pool = TaskInfo(TaskId("e1"), Command(("pool",)), one, executor=ExecutorSpec())
    child = TaskInfo(T, Command(), one, executor_id=pool.task_id)
    labels = tuple(
        (f"{number:03}" * 300, "\N{SNOWMAN}" * MAX_LABEL) for number in range(MAX_LABELS)
    )
    running = partial(ev.ExecutorUpdated, (F, pool.task_id), 1, T, TaskState.RUNNING)
    events: list[ev.Event] = [
        LaunchTask(F, pool, DEFAULT_ROLE),
        ev.Started((F, pool.task_id), 7),
        ev.ExecutorRegistered((F, pool.task_id), 1, frozenset()),
        LaunchTask(F, child, DEFAULT_ROLE),
        *(running(bytes([number]), labels=labels) for number in range(1, 60)),
    ]
    for event in events:
        step(state, event, Now(0, 0))
    assert all(report.ByteSize() < MAX_MESSAGE_BYTES for report in register_to_wire(WHO, state))
    for part in parts_of(state.tasks[F, T].updates.waiting):
        assert sum(status_to_wire(each).ByteSize() for each in part) < MAX_MESSAGE_BYTES


def test_a_launch_carries_the_role() -> None:
    info = TaskInfo(T, Command(("true",)), Resources.parse("cpus:1"))
    launch = pb.LaunchTask(framework_id=F, task=task_to_wire(info), role="ads/prod")
    assert order_from_wire(pb.Order(launch=launch)) == LaunchTask(F, info, Role("ads/prod"))
    launch.role = ""
    assert order_from_wire(pb.Order(launch=launch)) == LaunchTask(F, info, Role("*"))
    launch.role = "a/../b"
    with pytest.raises(InvalidRequest, match="role"):
        order_from_wire(pb.Order(launch=launch))


def test_a_kill_without_a_policy_has_no_grace() -> None:
    bare = pb.Order(kill=pb.KillTask(framework_id=F, task_id=T))
    assert order_from_wire(bare) == KillTask(F, T, None, Reason.NONE)
    at_once = pb.Order(
        kill=pb.KillTask(framework_id=F, task_id=T, reason=task_pb2.Reason.ValueType(14))
    )
    at_once.kill.kill_policy.grace_ms = 0
    assert order_from_wire(at_once) == KillTask(F, T, 0, Reason.KILLED_BY_FRAMEWORK)


def test_numbers_of_orders_are_bounded() -> None:
    endless = pb.Order(kill=pb.KillTask(framework_id=F, task_id=T))
    endless.kill.kill_policy.grace_ms = 2**64 - 1
    assert order_from_wire(endless) == KillTask(F, T, MAX_GRACE_MS, Reason.NONE)
    state = AgentState.of(Resources.parse("cpus:4"), AgentId("A1"))
    info = TaskInfo(T, Command(("true",)), Resources.parse("cpus:1"))
    step(state, LaunchTask(F, info, DEFAULT_ROLE), Now(0, 0))
    effects = step(state, AcknowledgeUpdate(F, T, 2**64 - 1), Now(0, 0))
    assert Checkpoint(AcknowledgedRecord(F, T, 1), lazy=True) in effects


def test_an_unknown_order_violates_the_protocol() -> None:
    with pytest.raises(ProtocolViolation, match="an order that is unknown: empty"):
        order_from_wire(pb.Order())
