"""Status updates of a batch leave in few messages, in order on each session."""

from __future__ import annotations

from croupier.master.batch import in_turns, joined
from croupier.master.core.effects import Answer, Close, Effect, Send, SessionId
from croupier.master.core.messages import Heartbeat, Registered, Updated
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.limits import MAX_PER_REPORT
from croupier.model.task import TaskState, TaskStatus

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
