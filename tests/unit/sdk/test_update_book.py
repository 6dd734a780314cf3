"""Updates are shown in order, and again until they are handled."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.task import MASTER_SEQUENCE, TaskState, TaskStatus
from croupier.sdk.core.updates import UpdateBook, UpdateDecision


def status(sequence: int, state: TaskState = TaskState.RUNNING, task_id: str = "t1") -> TaskStatus:
    return TaskStatus(FrameworkId("f"), TaskId(task_id), AgentId("a"), state, sequence=sequence)


def reconciled(sequence: int, state: TaskState = TaskState.RUNNING) -> TaskStatus:
    return replace(status(sequence, state), is_reconciled=True)


class TestUpdateBook:
    def test_a_new_update_is_shown_and_a_repeated_one_acknowledged(self) -> None:
        book = UpdateBook()
        assert book.decide(status(1)) is UpdateDecision.SHOW
        book.on_handled(status(1))
        assert book.decide(status(1)) is UpdateDecision.ACKNOWLEDGE
        assert book.decide(status(2)) is UpdateDecision.SHOW
        book.check()

    def test_an_end_is_shown_once_also_with_a_number_that_was_handled(self) -> None:
        book = UpdateBook()
        book.on_handled(status(2))
        dropped = status(1, TaskState.DROPPED)
        assert book.decide(dropped) is UpdateDecision.SHOW
        book.on_handled(dropped)
        book.check()
        assert book.decide(dropped) is UpdateDecision.ACKNOWLEDGE

    def test_an_update_of_the_master_is_always_shown(self) -> None:
        book = UpdateBook()
        for _ in range(2):
            assert book.decide(status(0)) is UpdateDecision.SHOW
            book.on_handled(status(0))
        book.check()

    def test_an_answer_to_reconcile_is_shown_although_it_was_handled(self) -> None:
        book = UpdateBook()
        book.on_handled(status(2))
        for _ in range(2):
            assert book.decide(reconciled(2)) is UpdateDecision.SHOW
            book.on_handled(reconciled(2))
        assert book.decide(reconciled(0, TaskState.UNKNOWN)) is UpdateDecision.SHOW
        assert book.decide(status(2)) is UpdateDecision.ACKNOWLEDGE
        book.on_failed(reconciled(2))
        assert book.decide(status(3)) is UpdateDecision.SHOW
        book.check()

    def test_a_task_that_ended_is_withdrawn_if_it_is_queued_again(self) -> None:
        book = UpdateBook()
        assert book.decide(reconciled(0, TaskState.QUEUED)) is UpdateDecision.SHOW
        book.on_handled(status(MASTER_SEQUENCE, TaskState.KILLED))
        for queued in (status(0, TaskState.QUEUED), reconciled(0, TaskState.QUEUED)):
            assert book.decide(queued) is UpdateDecision.WITHDRAW
        assert book.decide(status(MASTER_SEQUENCE, TaskState.KILLED)) is UpdateDecision.ACKNOWLEDGE
        book.check()

    def test_no_live_state_is_shown_after_an_end(self) -> None:
        for number in (3, 0, MASTER_SEQUENCE):
            book = UpdateBook()
            book.on_failed(status(1))
            end = reconciled(number, TaskState.FAILED)
            assert book.decide(end) is UpdateDecision.SHOW
            book.on_handled(end)
            for live in (status(1), status(2), status(9), status(0), reconciled(2)):
                assert book.decide(live) is UpdateDecision.ACKNOWLEDGE
            assert book.decide(end) is UpdateDecision.SHOW
            unknown = reconciled(0, TaskState.UNKNOWN)
            assert book.decide(unknown) is UpdateDecision.SHOW
            book.check()

    def test_the_first_update_seen_may_have_any_number(self) -> None:
        assert UpdateBook().decide(status(7)) is UpdateDecision.SHOW

    def test_updates_after_a_failed_one_are_held_back_until_it_is_handled(self) -> None:
        book = UpdateBook()
        book.on_failed(status(1))
        assert book.decide(status(2)) is UpdateDecision.HOLD
        assert book.decide(status(2, task_id="t2")) is UpdateDecision.SHOW
        assert book.decide(status(1)) is UpdateDecision.SHOW
        book.on_handled(status(1))
        assert book.decide(status(2)) is UpdateDecision.SHOW
        book.check()

    def test_a_held_back_update_is_shown_before_newer_ones(self) -> None:
        book = UpdateBook()
        book.on_failed(status(1))
        assert book.decide(status(2)) is UpdateDecision.HOLD
        book.on_handled(status(1))
        assert book.decide(status(3)) is UpdateDecision.HOLD
        assert book.decide(status(2)) is UpdateDecision.SHOW
        book.on_handled(status(2))
        assert book.decide(status(3)) is UpdateDecision.SHOW
        book.check()

    def test_an_end_reported_by_the_master_ends_the_wait(self) -> None:
        book = UpdateBook()
        book.on_failed(status(2))
        book.on_handled(status(0, TaskState.GONE))
        assert book.decide(status(3, TaskState.FINISHED)) is UpdateDecision.SHOW
        book.check()

    def test_an_end_reported_by_the_master_waits_for_nothing_and_is_shown_once(self) -> None:
        book = UpdateBook()
        book.on_failed(status(1))
        end = status(MASTER_SEQUENCE, TaskState.GONE)
        for _ in range(2):
            assert book.decide(end) is UpdateDecision.SHOW
            book.on_failed(end)
        assert book.decide(end) is UpdateDecision.SHOW
        book.on_handled(end)
        assert book.decide(end) is UpdateDecision.ACKNOWLEDGE
        assert book.decide(status(2, TaskState.FINISHED)) is UpdateDecision.ACKNOWLEDGE
        book.check()

    def test_an_end_reported_by_the_master_after_the_agents_is_not_shown(self) -> None:
        book = UpdateBook()
        book.on_handled(status(2, TaskState.FINISHED))
        assert book.decide(status(MASTER_SEQUENCE, TaskState.GONE)) is UpdateDecision.ACKNOWLEDGE
        book.check()

    def test_an_update_is_shown_if_the_earlier_ones_are_lost(self) -> None:
        book = UpdateBook()
        book.on_failed(status(1))
        for _ in range(2):
            assert book.decide(status(1)) is UpdateDecision.SHOW
            book.on_failed(status(1))
            assert book.decide(status(1001)) is UpdateDecision.HOLD
            # An agent that registers may send that twice.
            assert book.decide(status(1001)) is UpdateDecision.HOLD
            book.check()
        # Its agent has lost records, the first update among them.
        assert book.decide(status(1001)) is UpdateDecision.SHOW
        book.on_handled(status(1001))
        assert book.decide(status(1)) is UpdateDecision.ACKNOWLEDGE
        book.check()

    def test_ended_tasks_are_remembered_up_to_a_bound(self) -> None:
        book = UpdateBook(ended_limit=2)
        for task_id in ("t1", "t2", "t3"):
            book.on_handled(status(1, task_id=task_id))
            book.on_handled(status(2, TaskState.FINISHED, task_id))
        assert book.decide(status(2, TaskState.FINISHED, "t3")) is UpdateDecision.ACKNOWLEDGE
        assert book.decide(status(2, TaskState.FINISHED, "t1")) is UpdateDecision.SHOW
        book.check()

    def test_a_task_that_returns_keeps_its_last_handled_update(self) -> None:
        book = UpdateBook()
        book.on_handled(status(1))
        book.on_handled(status(0, TaskState.LOST))
        assert book.decide(status(1)) is UpdateDecision.ACKNOWLEDGE
        book.on_handled(status(2))
        assert book.last_handled("t1") == 2
        book.check()


@given(st.lists(st.tuples(st.integers(1, 6), st.booleans()), max_size=60))
def test_no_update_is_acknowledged_before_all_that_were_sent_before_it_were_handled(
    tries: list[tuple[int, bool]],
) -> None:
    """An agent sends 1..n, and resends from the first unhandled one; handlers fail at random."""
    book, handled, sent, previous = UpdateBook(), set[int](), 0, 0
    for sequence, fails in tries:
        missing = min(set(range(1, sent + 2)) - handled)
        if sequence != previous + 1 and sequence > missing:
            continue
        sent, previous = max(sent, sequence), sequence
        decision = book.decide(status(sequence))
        if decision is UpdateDecision.SHOW:
            if fails:
                book.on_failed(status(sequence))
                continue
            assert sequence not in handled
            book.on_handled(status(sequence))
            handled.add(sequence)
        if decision is not UpdateDecision.HOLD:
            assert handled >= set(range(1, sequence + 1))
        book.check()
