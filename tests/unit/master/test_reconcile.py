"""RECONCILE answers the latest status, and no live status follows an end."""

from __future__ import annotations

from dataclasses import replace

from croupier.master.core import calls
from croupier.master.core.effects import SessionId
from croupier.master.core.events import AgentReported, AgentTask, Register
from croupier.model.agent_orders import AcknowledgeUpdate
from croupier.model.resources import Resources
from croupier.model.task import MASTER_SEQUENCE, Reason, Source, TaskState, TaskStatus
from tests.harness.restarting import ALL, T1, Scene
from tests.harness.world import make_task

LIFE = (TaskState.STARTING, TaskState.RUNNING, TaskState.FAILED)


class Away(Scene):
    """`t1` ran and failed while its framework was disconnected; the framework is back."""

    def __init__(self, *states: TaskState) -> None:
        super().__init__()
        self.launch()
        self.end_session(self.session)
        common = (self.owner, T1, self.host_id)
        self.statuses = tuple(
            TaskStatus(*common, state, Source.EXECUTOR, sequence=number)
            for number, state in enumerate(states or LIFE, 1)
        )
        if not states:
            last = {"reason": Reason.EXECUTOR_TERMINATED, "message": "over 1GB", "signal": 9}
            self.statuses = (*self.statuses[:-1], replace(self.statuses[-1], **last))  # type: ignore[arg-type]
        self.send_again()
        self.framework_back()

    def send_again(self) -> None:
        """Resend what was not acknowledged."""
        self.do(AgentReported(self.host, self.statuses))

    def reconcile(self, seq: int = 2) -> TaskStatus:
        self.call(self.session, calls.Reconcile((T1,)), seq)
        return self.task_updates()[-1]


def test_answer_is_the_latest_status() -> None:
    scene = Away()
    assert scene.reconcile() == replace(scene.statuses[-1], is_reconciled=True)
    assert scene.task_updates() == [replace(scene.statuses[-1], is_reconciled=True)]


def test_no_live_status_follows_an_end_in_one_session() -> None:
    scene = Away()
    scene.reconcile()
    scene.send_again()
    assert [status.state for status in scene.task_updates()] == [TaskState.FAILED, TaskState.FAILED]
    # A new session may have missed the end, and is sent all updates in order.
    scene.end_session(scene.session)
    scene.framework_back()
    scene.send_again()
    assert [status.state for status in scene.task_updates()] == list(LIFE)


def test_reconciled_end_is_acknowledged_as_the_update() -> None:
    scene = Away()
    scene.acknowledge(scene.reconcile().sequence, 3)
    assert T1 not in scene.state.frameworks[scene.owner].tasks
    message = AcknowledgeUpdate(scene.owner, T1, 3)
    assert scene.sent[scene.host][-1] == message
    sent = len(scene.task_updates())
    scene.send_again()
    assert len(scene.task_updates()) == sent
    assert scene.sent[scene.host][-1] == message


def test_update_after_a_reconciled_live_status_is_sent() -> None:
    scene = Away(*LIFE[:2])
    assert scene.reconcile() == replace(scene.statuses[-1], is_reconciled=True)
    scene.report(scene.host, scene.owner, "t1", TaskState.FINISHED, 3)
    assert [status.sequence for status in scene.task_updates()] == [2, 3]


def test_end_made_by_the_master_keeps_its_number() -> None:
    scene = Away(TaskState.STARTING)
    scene.end_session(scene.host)
    scene.agent_back(incomplete=True)
    answer = scene.reconcile()
    assert (answer.state, answer.reason) == (TaskState.GONE, Reason.AGENT_RESTARTED)
    assert (answer.sequence, answer.is_reconciled) == (MASTER_SEQUENCE, True)


def test_end_with_a_later_number_is_sent_without_earlier_updates() -> None:
    """An agent that lost records resends all, with numbers above the lost ones."""
    scene = Away()
    scene.reconcile()
    scene.end_session(scene.host)
    later = tuple(replace(each, sequence=1000 + each.sequence) for each in scene.statuses[1:])
    task = AgentTask(scene.owner, make_task("t1"), later[-1], later)
    scene.host = SessionId(next(scene._sessions))
    total = Resources.parse(ALL)
    scene.do(Register(scene.host, scene.host_id, "host", total, {}, tasks=(task,), incomplete=True))
    assert [status.sequence for status in scene.task_updates()] == [3, 1003]
    scene.acknowledge(1003, 3)
    assert T1 not in scene.state.frameworks[scene.owner].tasks
