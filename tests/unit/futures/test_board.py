"""Which worker runs which call, and when workers are wanted or not."""

from __future__ import annotations

import itertools
from typing import Any

from croupier.futures.board import MAX_AHEAD, MAX_AHEAD_BYTES, MAX_FUNCTIONS, Board, Worker
from croupier.futures.call import Call, CallFuture, Terms
from croupier.futures.shape import Shape
from croupier.sdk import Resources

SMALL = Shape(Resources.parse("cpus:1"))
LARGE = Shape(Resources.parse("cpus:4"))
NUMBERS = itertools.count(1)


def call(shape: Shape = SMALL, payload: bytes = b"x", **terms: Any) -> Call:
    future: CallFuture[Any] = CallFuture(can_stop=terms.get("can_stop", False))
    return Call(next(NUMBERS), Terms(shape, **terms), future, payload)


def ready(board: Board, task_id: str, shape: Shape = SMALL, now: float = 0.0) -> Worker:
    worker = board.place(task_id, shape)
    board.ready(worker, now)
    return worker


def filled(count: int, max_workers: int = 4) -> tuple[Board, list[Call]]:
    board = Board(max_workers)
    calls = [call() for _ in range(count)]
    for each in calls:
        board.add(each)
    return board, calls


def hasten(board: Board, worker: Worker, calls: int = 3) -> float:
    """Let a worker run some calls of 0.1 ms; return the time."""
    now = 0.0
    for _ in range(calls):
        board.next_calls(worker, now)
        now += 0.0001
        board.ended(worker, next(iter(worker.calls)), now)
    return now


def test_as_many_workers_as_calls_are_wanted_at_most_the_bound() -> None:
    board, _ = filled(3)
    assert board.missing() == {SMALL: 3}
    board.place("w1", SMALL)
    assert board.missing() == {SMALL: 2}
    for _ in range(10):
        board.add(call())
    assert board.missing() == {SMALL: 3}


def test_calls_run_in_order_and_one_at_a_time_at_first() -> None:
    board, calls = filled(3)
    worker = ready(board, "w1")
    assert board.next_calls(worker, 0.0) == calls[:1]
    assert board.next_calls(worker, 0.0) == []
    assert board.ended(worker, calls[0].number, 1.0) is calls[0]
    assert board.next_calls(worker, 1.0) == calls[1:2]
    assert [each.attempts for each in calls] == [1, 1, 0]


def test_short_calls_are_handed_out_ahead_of_time() -> None:
    board, _ = filled(100)
    worker = ready(board, "w1")
    now = hasten(board, worker)
    board.next_calls(worker, now)
    assert len(worker.calls) == 1 + MAX_AHEAD


def test_the_last_calls_are_spread_over_workers() -> None:
    board, _ = filled(13)
    worker = ready(board, "w1")
    now = hasten(board, worker, 5)
    board.given_back(worker, list(worker.calls))
    others = [ready(board, f"w{n}") for n in (2, 3, 4)]
    board.next_calls(worker, now)
    assert len(worker.calls) <= 1 + 8 // 4
    assert all(board.next_calls(other, now) for other in others)


def test_large_calls_are_not_handed_out_ahead() -> None:
    board = Board(4)
    for _ in range(10):
        board.add(call(payload=b"x"))
    worker = ready(board, "w1")
    now = hasten(board, worker)
    board.next_calls(worker, now)
    board.given_back(worker, list(worker.calls)[1:])
    big = call(payload=bytes(MAX_AHEAD_BYTES))
    board.put_back([big])
    assert board.next_calls(worker, now) == []
    for number in list(worker.calls):
        board.ended(worker, number, now)
    assert board.next_calls(worker, now)[0] is big


def test_calls_behind_a_long_one_are_taken_back_once_and_run_elsewhere() -> None:
    board, _ = filled(100)
    worker = ready(board, "w1")
    now = hasten(board, worker)
    board.next_calls(worker, now)
    assert board.stuck(now + 0.01) == []
    assert board.stuck(now + 1.0) == [worker]
    assert board.stuck(now + 1.0) == []
    first, *behind = worker.calls
    board.given_back(worker, behind)
    assert list(worker.calls) == [first]
    other = ready(board, "w2")
    taken = board.next_calls(other, now)
    assert [each.number for each in taken] == behind[:1]
    assert taken[0].attempts == 1
    board.ended(worker, first, now + 1.5)
    assert len(board.next_calls(worker, now + 1.5)) == 1, "one by one again"


def test_a_cancelled_call_is_never_handed_out() -> None:
    board, calls = filled(2)
    worker = ready(board, "w1")
    assert calls[0].future.cancel()
    assert board.next_calls(worker, 0.0) == calls[1:]
    assert not calls[1].future.cancel(), "it runs"


def test_a_call_that_may_be_stopped_is_cancelled_while_it_runs() -> None:
    board = Board(1)
    stoppable = call(can_stop=True)
    board.add(stoppable)
    worker = ready(board, "w1")
    board.next_calls(worker, 0.0)
    assert stoppable.future.running()
    assert stoppable.future.cancel()
    assert not stoppable.future.running()
    assert board.drop(stoppable) == (True, worker)
    assert board.drop(stoppable) == (False, None)
    assert board.idle_for(SMALL) is worker


def test_the_worker_that_was_used_last_is_used_first() -> None:
    board = Board(4)
    first, second = ready(board, "w1"), ready(board, "w2")
    board.add(call())
    assert board.idle_for(SMALL) is second
    (handed,) = board.next_calls(first, 1.0)
    board.ended(first, handed.number, 2.0)
    assert board.idle_for(SMALL) is first
    assert board.surplus(5.0, 4.0) == [second]


def test_idle_workers_make_room_for_another_shape() -> None:
    board = Board(2)
    idle = [ready(board, "w1"), ready(board, "w2")]
    assert board.surplus(0.0, 10.0) == []
    board.add(call(LARGE))
    assert board.missing() == {}
    assert board.surplus(0.0, 10.0) == idle
    board.leave(idle[0])
    assert board.idle_for(SMALL) is idle[1]
    assert board.lost("w1") == []
    assert board.missing() == {LARGE: 1}


def test_workers_run_calls_of_their_shape_only() -> None:
    board = Board(2)
    board.add(call(LARGE))
    assert board.next_calls(ready(board, "w1", SMALL), 0.0) == []
    assert len(board.next_calls(ready(board, "w2", LARGE), 0.0)) == 1


def test_a_lost_worker_leaves_its_calls() -> None:
    board, calls = filled(1)
    board.next_calls(ready(board, "w1"), 0.0)
    assert board.calls() == calls
    assert board.lost("w1") == calls
    assert (board.calls(), board.lost("w1")) == ([], [])


def test_functions_that_were_not_used_for_long_are_forgotten() -> None:
    worker = Worker("w1", SMALL)
    assert [worker.keep(n) for n in (1, 1)] == [(True, None), (False, None)]
    for number in range(2, MAX_FUNCTIONS + 1):
        worker.keep(number)
    worker.keep(1)
    assert worker.keep(100) == (True, 2)


def test_waiters_of_a_cancelled_call_are_told_once() -> None:
    future: CallFuture[Any] = CallFuture()
    assert future.cancel()
    assert not future.set_running_or_notify_cancel()
    # When the executor breaks, the call is dropped after it was told.
    assert not future.set_running_or_notify_cancel()
    assert future.cancelled()
