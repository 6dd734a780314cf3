"""Streams of the master: a message that cannot be encoded ends its own session only."""

from __future__ import annotations

from croupier.master.core.effects import Send
from croupier.master.core.events import Event, SessionEnded
from croupier.master.core.messages import AcknowledgeUpdate, Updated
from croupier.master.sessions import Sessions
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.task import TaskState, TaskStatus
from croupier.rpc.inbox import Inbox

F, T, A = FrameworkId("f"), TaskId("t"), AgentId("a")


async def test_a_message_that_cannot_be_encoded_ends_its_own_session_only() -> None:
    sessions, inbox = Sessions(), Inbox[Event]()
    sessions.report_to(inbox)
    framework, agent, other = (
        sessions.open_framework(),
        sessions.open_agent(),
        sessions.open_agent(),
    )
    late = TaskStatus(F, T, A, TaskState.UNKNOWN, decided_in_s=2.0**64)
    sessions.send(Send(framework.session_id, Updated((late,))))
    sessions.send(Send(agent.session_id, AcknowledgeUpdate(F, T, 2**64)))
    sessions.send(Send(other.session_id, AcknowledgeUpdate(F, T, 1)))
    ended = inbox.take(10)
    assert [type(event) for event in ended] == [SessionEnded, SessionEnded]
    assert "Updated for this peer cannot be encoded" in str(framework.error)
    assert agent.outbox.is_closed
    assert not other.outbox.is_closed
    assert len(other.outbox) == 1
    assert sessions.dropped == 2
