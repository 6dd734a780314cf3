"""Streams of the master: a message that cannot be encoded ends its own session only."""

from __future__ import annotations

from croupier.master.core.effects import Send
from croupier.master.core.events import SessionEnded
from croupier.master.core.messages import Updated
from croupier.master.core.step import Event
from croupier.master.session_limits import SessionLimits
from croupier.master.sessions import Sessions
from croupier.model.agent_orders import AcknowledgeUpdate
from croupier.model.errors import TooSlow
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.task import TaskState, TaskStatus
from croupier.process.inbox import Inbox

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


async def test_the_session_that_reads_least_is_cut_off_when_all_hold_too_much() -> None:
    sessions, inbox = Sessions(SessionLimits(outbox_bytes=50_000)), Inbox[Event]()
    sessions.report_to(inbox)
    deaf, other = sessions.open_agent(), sessions.open_agent()
    sessions.send(Send(other.session_id, AcknowledgeUpdate(F, T, 1)))
    for sequence in range(1, 1_000):
        sessions.send(Send(deaf.session_id, AcknowledgeUpdate(F, T, sequence)))
        if deaf.outbox.is_closed:
            break
    assert isinstance(deaf.error, TooSlow)
    assert inbox.take(10) == [SessionEnded(deaf.session_id, str(deaf.error))]
    # What it was sent takes no memory, and the others go on.
    assert deaf.outbox.held_bytes < 1_000
    for _ in range(10):
        sessions.send(Send(other.session_id, AcknowledgeUpdate(F, T, 1)))
    assert other.error is None
    assert len(other.outbox) == 11
