"""Executors at the master: which tasks may run in one, and messages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.master.core import calls
from croupier.master.core.events import AgentReported, ExecutorSaid
from croupier.master.core.messages import MessageArrived
from croupier.master.services.task_places import NamedTask, places_of
from croupier.model.agent_orders import ExecutorMessage
from croupier.model.errors import Conflict, CroupierError, InvalidRequest, NotFound, Unavailable
from croupier.model.executor import MAX_MESSAGE_DATA
from croupier.model.ids import TaskId
from croupier.model.task import Reason, Source, TaskInfo, TaskState, TaskStatus
from croupier.model.verdict import Verdict
from tests.harness.world import World, make_task, with_executor

SMALL = "cpus:0.5;mem:64MB"


class Executing(World):
    """Two agents, and a framework with the executor `e1` on the first."""

    def __init__(self) -> None:
        super().__init__()
        self.host = self.agent("cpus:2;mem:2GB", features="executors")
        self.host_id = self.agent_id(self.host)
        self.session = self.framework()
        self.owner = self.framework_id(self.session)
        self.accept(self.session, with_executor(make_task("e1", SMALL)))

    def errors(self) -> dict[str, str]:
        """Return the errors of the tasks of the latest verdict."""
        verdict = [each for each in self.sent[self.session] if isinstance(each, Verdict)][-1]
        return {each.task_id: type(each.error).__name__ for each in verdict.tasks if each.error}

    def launch(self, *tasks: TaskInfo) -> None:
        """Launch tasks once their resources are offered again."""
        self.pass_time(6)
        self.accept(self.session, *tasks)

    def error(self) -> CroupierError | None:
        return [each for each in self.sent[self.session] if isinstance(each, Verdict)][-1].error

    def task(self, task_id: str, executor_id: str = "e1") -> TaskInfo:
        return with_executor(make_task(task_id, SMALL), executor_id)

    def tell(self, state: TaskState, number: int, task_id: str = "e1", data: bytes = b"") -> None:
        key = (self.owner, TaskId(task_id), self.host_id)
        status = TaskStatus(*key, state, Source.EXECUTOR, sequence=number, data=data)
        self.do(AgentReported(self.host, (status,)))

    def state_of(self, task_id: str) -> TaskState:
        return self.state.frameworks[self.owner].tasks[TaskId(task_id)].state


def test_a_task_names_an_executor_of_its_framework_on_the_agent_of_the_offer() -> None:
    world = Executing()
    world.launch(world.task("t1"), world.task("t2", "none"))
    assert world.errors() == {"t2": "InvalidRequest"}
    assert [info.task_id for info in world.launches(world.host)] == ["e1", "t1"]
    other = world.agent("cpus:2;mem:2GB", hostname="other", features="executors")
    world.launch(world.task("t3"), with_executor(make_task("e2", SMALL)))
    assert world.errors() == {"t3": "InvalidRequest"}
    assert [info.task_id for info in world.launches(other)] == ["e2"]
    world.tell(TaskState.FAILED, 1)
    world.launch(world.task("t4"))
    assert world.errors() == {"t4": "InvalidRequest"}


def test_an_agent_that_knows_no_executors_gets_none() -> None:
    world = World()
    old = world.agent("cpus:2;mem:2GB")
    session = world.framework()
    world.accept(session, with_executor(make_task("e1", SMALL)))
    assert world.launches(old) == []


def test_a_submitted_task_waits_for_room_beside_its_executor_and_ends_with_it() -> None:
    world = Executing()
    world.agent("cpus:8;mem:8GB", hostname="other", features="executors")
    wide = replace(world.task("t1"), resources=make_task("x", "cpus:2;mem:64MB").resources)
    world.call(world.session, calls.Submit((wide, world.task("t2", "none"))))
    assert world.errors() == {"t2": "InvalidRequest"}
    assert world.state_of("t1") is TaskState.QUEUED
    world.tell(TaskState.FINISHED, 1)
    [ended] = [each for each in world.updates(world.session) if each.task_id == "t1"]
    assert (ended.state, ended.reason) == (TaskState.DROPPED, Reason.EXECUTOR_TERMINATED)


def test_a_queued_task_ends_alike_if_its_executor_is_about_to_end() -> None:
    world = Executing()
    world.launch(make_task("t0", "cpus:1.5;mem:64MB"))
    world.call(world.session, calls.Submit((world.task("t1"),)))
    world.call(world.session, calls.Kill(TaskId("e1")))
    world.tell(TaskState.FINISHED, 1, "t0")
    world.pass_time(1)
    [ended] = [each for each in world.updates(world.session) if each.task_id == "t1"]
    assert (ended.state, ended.reason) == (TaskState.DROPPED, Reason.EXECUTOR_TERMINATED)


def test_messages_pass_in_both_directions() -> None:
    world = Executing()
    world.call(world.session, calls.SendMessage(TaskId("e1"), b"hello"))
    assert world.error() is None
    assert ExecutorMessage(world.owner, TaskId("e1"), b"hello") in world.sent[world.host]
    world.do(ExecutorSaid(world.host, ExecutorMessage(world.owner, TaskId("e1"), b"hi")))
    assert MessageArrived(TaskId("e1"), world.host_id, b"hi") in world.sent[world.session]
    # What another agent says, or what is said of no executor, is dropped.
    other = world.agent("cpus:2;mem:2GB", hostname="other")
    world.do(ExecutorSaid(other, ExecutorMessage(world.owner, TaskId("e1"), b"false")))
    world.do(ExecutorSaid(world.host, ExecutorMessage(world.owner, TaskId("e9"), b"false")))
    said = [each for each in world.sent[world.session] if isinstance(each, MessageArrived)]
    assert [each.data for each in said] == [b"hi"]


def test_messages_of_all_executors_of_a_framework_are_bounded() -> None:
    world = Executing()
    message = ExecutorSaid(
        world.host, ExecutorMessage(world.owner, TaskId("e1"), bytes(MAX_MESSAGE_DATA))
    )
    for _ in range(300):
        world.do(message)
    said = [each for each in world.sent[world.session] if isinstance(each, MessageArrived)]
    assert len(said) == 236
    world.now += 1
    world.do(message)
    assert isinstance(world.sent[world.session][-1], MessageArrived)
    assert (
        len([each for each in world.sent[world.session] if isinstance(each, MessageArrived)]) == 237
    )


@pytest.mark.parametrize(
    ("task_id", "data", "kind"),
    [
        ("e9", b"", NotFound),
        ("t1", b"", InvalidRequest),
        ("e1", b"x" * (MAX_MESSAGE_DATA + 1), InvalidRequest),
    ],
)
def test_a_message_that_cannot_be_passed_on_is_refused(
    task_id: str, data: bytes, kind: type[CroupierError]
) -> None:
    world = Executing()
    world.launch(world.task("t1"))
    world.call(world.session, calls.SendMessage(TaskId(task_id), data))
    assert isinstance(world.error(), kind)


def test_a_message_is_dropped_if_there_are_too_many_or_its_agent_is_away() -> None:
    world = Executing()
    for _ in range(200):
        world.call(world.session, calls.SendMessage(TaskId("e1"), b"x" * MAX_MESSAGE_DATA))
    assert isinstance(world.error(), Unavailable)
    world.pass_time(10)
    world.call(world.session, calls.SendMessage(TaskId("e1"), b"x"))
    assert world.error() is None
    world.end_session(world.host)
    world.call(world.session, calls.SendMessage(TaskId("e1"), b"x"))
    assert isinstance(world.error(), Unavailable)


def test_a_message_to_an_executor_that_has_ended_is_a_conflict() -> None:
    world = Executing()
    world.tell(TaskState.FINISHED, 1)
    world.call(world.session, calls.SendMessage(TaskId("e1"), b"x"))
    assert isinstance(world.error(), Conflict)


def test_an_answer_to_reconcile_lacks_the_data_and_the_update_still_needs_its_own() -> None:
    world = Executing()
    world.launch(world.task("t1"))
    world.tell(TaskState.FINISHED, 1, "t1", b"result")
    assert world.updates(world.session)[-1].data == b"result"
    world.call(world.session, calls.Reconcile((TaskId("t1"),)))
    answer = world.updates(world.session)[-1]
    assert (answer.is_reconciled, answer.sequence, answer.data) == (True, 0, b"")
    updates = ((world.host_id, TaskId("t1"), 1),)
    world.call(world.session, calls.Acknowledge(updates))
    assert TaskId("t1") not in world.state.frameworks[world.owner].tasks


def test_places_of_tasks_name_their_executors() -> None:
    world = Executing()
    world.launch(world.task("t1"))

    def executors() -> list[str]:
        tasks = (NamedTask(TaskId(name), world.owner, world.host_id) for name in ("e1", "t1"))
        return [place.executor_id for task in tasks for place in places_of(world.state, task)]

    assert executors() == ["", "e1"]
    world.tell(TaskState.FINISHED, 1, "t1")
    assert executors() == ["", "e1"]
