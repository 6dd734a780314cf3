"""Sessions: their batches of updates, what cuts them off, and when peers reconnect."""

from __future__ import annotations

import pytest

from croupier.master import sessions
from croupier.master.batch import in_turns, joined
from croupier.master.core.effects import Answer, Close, Effect, Send, SessionId
from croupier.master.core.events import SessionEnded
from croupier.master.core.messages import Heartbeat, Registered, Updated
from croupier.master.core.step import Event
from croupier.master.sessions import SessionLimits, Sessions
from croupier.master.wire.to_agent import order_to_wire
from croupier.model.agent_orders import AcknowledgeUpdate
from croupier.model.errors import TooSlow
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.limits import MAX_PER_REPORT
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


# Status updates of a batch leave in few messages, in order on each session.


ONE, OTHER = SessionId(1), SessionId(2)


def status(sequence: int) -> TaskStatus:
    ids = FrameworkId("f1"), TaskId("t1"), AgentId("a1")
    return TaskStatus(*ids, TaskState.RUNNING, sequence=sequence)


def update(session: SessionId, *sequences: int) -> Effect:
    return Send(session, Updated(tuple(map(status, sequences))))


def test_updates_of_a_session_are_one_message_whatever_is_between() -> None:
    effects = [update(ONE, 1), update(OTHER, 7), update(ONE, 2), update(OTHER, 8), update(ONE, 3)]
    assert joined(effects) == [update(ONE, 1, 2, 3), update(OTHER, 7, 8)]


def test_other_messages_of_the_session_stay_between_its_updates() -> None:
    for between in (Send(ONE, Heartbeat()), Close(ONE, None)):
        effects = [update(ONE, 1), between, update(ONE, 2), update(ONE, 3)]
        assert joined(effects) == [update(ONE, 1), between, update(ONE, 2, 3)]


def test_a_message_is_bounded() -> None:
    found = joined([update(ONE, number) for number in range(MAX_PER_REPORT + 1)])
    assert found == [update(ONE, *range(MAX_PER_REPORT)), update(ONE, MAX_PER_REPORT)]


def test_agents_get_their_messages_first_and_facts_come_last() -> None:
    order = Send(OTHER, Registered(AgentId("a1"), 1.0, "m1"))
    effects = [Answer(1, None), update(ONE, 1), order, Close(ONE, None), update(ONE, 2)]
    assert in_turns(effects) == (
        [order, update(ONE, 1), update(ONE, 2)],
        [Answer(1, None), Close(ONE, None)],
    )


# A master tells agents how long to wait between attempts to reconnect.


@pytest.mark.parametrize(("per_s", "wait_s"), [(2000, 1.0), (2, 2.5), (0.1, 10.0)])
def test_few_agents_come_back_at_once(
    monkeypatch: pytest.MonkeyPatch, per_s: float, wait_s: float
) -> None:
    monkeypatch.setattr(sessions, "PEERS_PER_S", per_s)
    opened = Sessions(SessionLimits())
    assert [opened.open_agent() for _ in range(5)][-1].reconnect_s == wait_s


def test_the_wait_is_sent() -> None:
    order = order_to_wire(Registered(AgentId("a1"), 15.0, "m"), reconnect_s=2.5)
    assert order.registered.reconnect_ms == 2500
