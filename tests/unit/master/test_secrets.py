"""The core with tasks that have secrets, and the sessions that deliver them."""

from __future__ import annotations

import pytest

from croupier.master.core import calls
from croupier.master.core.effects import Send, SessionId
from croupier.master.core.events import LaunchUnsent, Register
from croupier.master.core.step import Event
from croupier.master.sealing import KeyBox, SecretKey, open_task, seal_task
from croupier.master.session import AgentSession, FrameworkSession
from croupier.master.sessions import Sessions
from croupier.model.agent_orders import LaunchTask
from croupier.model.errors import InvalidRequest
from croupier.model.ids import FrameworkId, Role
from croupier.model.resources import Resources
from croupier.model.secrets import WITHHELD, SecretValues
from croupier.model.task import Reason, TaskInfo, TaskState
from croupier.process.inbox import Inbox
from croupier.v1 import agent_pb2, framework_pb2, task_pb2
from croupier.wire.task import task_to_wire
from tests.harness.off_the_wire import call_from_wire, report_from_wire
from tests.harness.restarting import ALL, T1, Scene
from tests.harness.world import make_task

CANARY = "hunter2"
VALUES = SecretValues({"PASSWORD": CANARY})
BOX = KeyBox(lambda: (SecretKey(b"k" * 32),))
OTHER = KeyBox(lambda: (SecretKey(b"o" * 32),))


class Trusting(Scene):
    """A scene whose agent takes secrets."""

    def returns(self, takes_secrets: bool = True) -> None:
        self.host = SessionId(next(self._sessions))
        total = Resources.parse(ALL)
        event = Register(self.host, self.host_id, "host", total, {}, takes_secrets=takes_secrets)
        self.do(event)

    def secret_task(self) -> TaskInfo:
        return seal_task(BOX, self.owner, make_task("t1"), VALUES)

    def launched(self) -> list[LaunchTask]:
        return [each for each in self.sent[self.host] if isinstance(each, LaunchTask)]


def test_an_agent_that_gets_no_secrets_is_not_sent_the_task() -> None:
    scene = Trusting()
    verdict = scene.accept(scene.session, scene.secret_task())
    (refused,) = verdict.tasks
    assert isinstance(refused.error, InvalidRequest)
    assert "TLS" in str(refused.error)
    assert not scene.launched()


def test_a_task_is_launched_with_sealed_values() -> None:
    scene = Trusting()
    scene.returns()
    task = scene.secret_task()
    scene.launch(task)
    (order,) = scene.launched()
    assert order.task == task
    assert scene.records[0].info == task
    assert CANARY not in repr((task, scene.records))


def test_a_launch_that_never_arrived_is_sent_again_with_its_values() -> None:
    scene = Trusting()
    scene.returns()
    scene.launch(scene.secret_task())
    (first,) = scene.launched()
    scene.returns()
    assert scene.launched() == [first]


def test_a_launch_is_not_sent_again_over_a_connection_without_secrets() -> None:
    scene = Trusting()
    scene.returns()
    scene.launch(scene.secret_task())
    scene.returns(takes_secrets=False)
    assert not scene.launched()
    (dropped,) = scene.task_updates()
    assert (dropped.state, dropped.reason) == (TaskState.DROPPED, Reason.AGENT_RESTARTED)


def test_a_launch_that_cannot_be_opened_ends_the_task_and_nothing_else() -> None:
    scene = Trusting()
    scene.returns()
    scene.launch(scene.secret_task())
    scene.do(LaunchUnsent(scene.host, scene.owner, T1, "the key is lost"))
    (dropped,) = scene.task_updates()
    assert (dropped.state, dropped.message) == (TaskState.DROPPED, "the key is lost")
    assert scene.state.agents[scene.host_id].session == scene.host
    # A second report, or one about a task that is gone, changes nothing.
    scene.do(LaunchUnsent(scene.host, scene.owner, T1, "again"))
    scene.do(LaunchUnsent(SessionId(99), scene.owner, T1, "again"))
    assert len(scene.task_updates()) == 1


def order() -> LaunchTask:
    task = seal_task(BOX, FrameworkId("f1"), make_task("t1"), VALUES)
    return LaunchTask(FrameworkId("f1"), task, Role("*"))


class Listed(Inbox[Event]):
    """An inbox whose events a test reads."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def put_now(self, event: Event) -> None:
        self.events.append(event)


def opened(sessions: Sessions) -> tuple[AgentSession, list[Event]]:
    inbox = Listed()
    sessions.report_to(inbox)
    return sessions.open_agent(), inbox.events


async def test_the_agent_gets_plain_values() -> None:
    sessions = Sessions(box=BOX)
    session, events = opened(sessions)
    sessions.send(Send(session.session_id, order()))
    (message,) = await session.outbox.take()
    launch = agent_pb2.Order.FromString(message).launch
    assert dict(launch.task.command.secrets) == {"PASSWORD": CANARY}
    assert not events


def test_a_launch_under_a_lost_key_is_reported_and_the_session_goes_on() -> None:
    sessions = Sessions(box=OTHER)
    session, events = opened(sessions)
    sessions.send(Send(session.session_id, order()))
    (event,) = events
    assert isinstance(event, LaunchUnsent)
    assert (event.task_id, CANARY in event.message) == ("t1", False)
    assert not len(session.outbox)
    assert not session.outbox.is_closed


def accept_call() -> framework_pb2.Call:
    task = task_to_wire(make_task("t1"))
    task.command.secrets["PASSWORD"] = CANARY
    launch = framework_pb2.Launch(tasks=[task])
    operations = [framework_pb2.Operation(launch=launch)]
    return framework_pb2.Call(seq=1, accept=framework_pb2.Accept(operations=operations))


def accepted(session: FrameworkSession) -> calls.Accept:
    event = call_from_wire(session.session_id, accept_call(), session.seal)
    assert CANARY not in repr(event)
    assert isinstance(event.call, calls.Accept)
    return event.call


def test_an_accept_is_sealed_as_it_is_decoded() -> None:
    session = FrameworkSession(SessionId(1), box=BOX)
    session.framework_id = FrameworkId("f1")
    (task,) = accepted(session).tasks
    assert open_task(BOX, FrameworkId("f1"), task) == VALUES


@pytest.mark.parametrize(
    ("session", "why"),
    [
        (FrameworkSession(SessionId(1)), "--secrets-key-file"),
        (FrameworkSession(SessionId(1), box=BOX, is_private=False), "count as leaked"),
    ],
)
def test_secrets_that_cannot_be_sealed_refuse_the_task_only(
    session: FrameworkSession, why: str
) -> None:
    accept = accepted(session)
    (malformed,) = accept.malformed
    assert (malformed.task_id, why in malformed.message) == ("t1", True)
    assert not accept.tasks


def test_too_large_secrets_are_refused_without_their_text() -> None:
    call = accept_call()
    call.accept.operations[0].launch.tasks[0].command.secrets["PASSWORD"] = CANARY * 20_000
    event = call_from_wire(SessionId(1), call, FrameworkSession(SessionId(1), box=BOX).seal)
    assert CANARY not in repr(event)
    assert isinstance(event.call, calls.Accept)
    assert "larger than" in event.call.malformed[0].message


def test_the_master_ignores_values_that_an_agent_reports() -> None:
    task = task_to_wire(make_task("t1"))
    task.command.secrets["PASSWORD"] = CANARY
    status = task_pb2.TaskStatus(
        framework_id="f1",
        task_id="t1",
        agent_id="a1",
        sequence=1,
        state=task_pb2.TASK_RUNNING,
        source=task_pb2.SOURCE_AGENT,
    )
    listed = agent_pb2.AgentTask(framework_id="f1", task=task, latest=status)
    register = agent_pb2.Register(agent_id="a1", hostname="h", tasks=[listed])
    event = report_from_wire(SessionId(1), agent_pb2.Report(register=register))
    assert isinstance(event, Register)
    assert event.tasks[0].task.command.secrets == {"PASSWORD": WITHHELD}
    assert CANARY not in repr(event)


def test_plain_text_between_machines_needs_insecure() -> None:
    assert not Sessions().open_framework(is_private=False).is_private
    trusting = Sessions(accepts_plaintext=True)
    assert trusting.open_agent(is_private=False).is_private


def test_without_a_key_other_tasks_are_accepted() -> None:
    call = accept_call()
    del call.accept.operations[0].launch.tasks[0].command.secrets["PASSWORD"]
    event = call_from_wire(SessionId(1), call, FrameworkSession(SessionId(1)).seal)
    assert isinstance(event.call, calls.Accept)
    assert len(event.call.tasks) == 1
