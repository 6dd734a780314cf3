"""Sessions that are cut off: unencodable messages, and outboxes that are too large."""

from __future__ import annotations

from croupier.master.core.effects import Send
from croupier.master.core.events import SessionEnded
from croupier.master.core.messages import Updated
from croupier.master.core.step import Event
from croupier.master.sessions import SessionLimits, Sessions
from croupier.model.agent_orders import AcknowledgeUpdate
from croupier.model.errors import TooSlow
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.task import TaskState, TaskStatus
from croupier.process.inbox import Inbox

F, T, A = FrameworkId("f"), TaskId("t"), AgentId("a")


async def test_unencodable_message_ends_its_own_session_only() -> None:
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


async def test_largest_outbox_is_cut_off_when_all_hold_too_much() -> None:
    sessions, inbox = Sessions(SessionLimits(outbox_bytes=50_000)), Inbox[Event]()
    sessions.report_to(inbox)
    slow, other = sessions.open_agent(), sessions.open_agent()
    sessions.send(Send(other.session_id, AcknowledgeUpdate(F, T, 1)))
    for sequence in range(1, 1_000):
        sessions.send(Send(slow.session_id, AcknowledgeUpdate(F, T, sequence)))
        if slow.outbox.is_closed:
            break
    assert isinstance(slow.error, TooSlow)
    assert inbox.take(10) == [SessionEnded(slow.session_id, str(slow.error))]
    # Its messages take no memory any more, and other sessions continue.
    assert slow.outbox.held_bytes < 1_000
    for _ in range(10):
        sessions.send(Send(other.session_id, AcknowledgeUpdate(F, T, 1)))
    assert other.error is None
    assert len(other.outbox) == 11
