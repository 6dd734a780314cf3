"""What the policies of a job do, in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.apps.controller.outcomes import Outcome
from croupier.apps.cron.core.board import MAX_DROPS, Board, Stored
from croupier.apps.cron.core.job import (
    CronJob,
    Effect,
    KeepCursor,
    KeepRun,
    Kill,
    LaunchRun,
    Missed,
    Overlap,
    RunState,
    ScheduledRun,
    due_times,
    latest,
)
from croupier.apps.cron.core.schedule import Schedule
from croupier.apps.job_file.task_spec import Backoff, TaskSpec

MINUTELY = CronJob("a", Schedule("* * * * *"))
START = 1_800_000_000


def board_of(job: CronJob, stored: Stored | None = None, now: float = START) -> Board:
    board = Board()
    list(board.load([job], {} if stored is None else {job.name: stored}, now))
    return board


def at(board: Board, seconds: float) -> list[Effect]:
    effects = list(board.on_time(START + seconds))
    board.check()
    return effects


def launched(effects: list[Effect]) -> list[str]:
    return [effect.run.task_id for effect in effects if isinstance(effect, LaunchRun)]


def states(effects: list[Effect]) -> list[tuple[int, RunState]]:
    return [(e.run.scheduled - START, e.run.state) for e in effects if isinstance(e, KeepRun)]


def update(board: Board, task_id: str, outcome: Outcome, seconds: float) -> list[Effect]:
    effects = list(board.on_end(task_id, outcome, START + seconds))
    board.check()
    return effects


def test_a_new_job_runs_at_its_first_time_from_now_on() -> None:
    board = board_of(MINUTELY)
    assert board.wake_at() == START + 60
    assert at(board, 59) == []
    effects = at(board, 60)
    assert launched(effects) == ["a.20270115T080100Z.1"]
    assert [type(effect) for effect in effects] == [KeepCursor, KeepRun, LaunchRun]
    assert at(board, 60) == []


def test_a_time_is_skipped_while_an_earlier_run_has_not_ended() -> None:
    board = board_of(MINUTELY)
    (task_id,) = launched(at(board, 60))
    assert states(at(board, 120)) == [(120, RunState.SKIPPED)]
    update(board, task_id, Outcome.SUCCEEDED, 130)
    assert len(launched(at(board, 180))) == 1


def test_a_queue_runs_one_after_the_other_and_is_bounded() -> None:
    board = board_of(replace(MINUTELY, overlap=Overlap.QUEUE, queue=2))
    (task_id,) = launched(at(board, 60))
    queued = [states(at(board, 60 * number)) for number in (2, 3, 4)]
    assert queued == [
        [(120, RunState.WAITING)], [(180, RunState.WAITING)], [(240, RunState.SKIPPED)]
    ]  # fmt: skip
    assert launched(update(board, task_id, Outcome.SUCCEEDED, 241)) == ["a.20270115T080200Z.1"]


def test_a_later_run_replaces_an_earlier_one_once_that_has_ended() -> None:
    board = board_of(replace(MINUTELY, overlap=Overlap.REPLACE))
    (task_id,) = launched(at(board, 60))
    effects = at(board, 120)
    assert [e.run.task_id for e in effects if isinstance(e, Kill)] == [task_id]
    assert launched(effects) == []
    later = at(board, 180)
    assert states(later) == [(120, RunState.SKIPPED), (180, RunState.WAITING)]
    assert not any(isinstance(effect, Kill) for effect in later)
    effects = update(board, task_id, Outcome.FAILED, 181)
    assert states(effects)[0] == (60, RunState.REPLACED)
    assert launched(effects) == ["a.20270115T080300Z.1"]


def test_a_replaced_run_that_finished_first_has_finished() -> None:
    board = board_of(replace(MINUTELY, overlap=Overlap.REPLACE))
    (task_id,) = launched(at(board, 60))
    at(board, 120)
    assert states(update(board, task_id, Outcome.SUCCEEDED, 121))[0] == (60, RunState.FINISHED)


@pytest.mark.parametrize(
    ("missed", "expected"),
    [(Missed.SKIP, []), (Missed.ONCE, [3540]), (Missed.ALL, [3420, 3480, 3540])],
)
def test_missed_times(missed: Missed, expected: list[int]) -> None:
    job = replace(MINUTELY, missed=missed, catch_up=3)
    stored = Stored(START, "* * * * * UTC")
    board = board_of(job, stored, START + 3605)
    effects = at(board, 3605)
    found = states(effects)
    on_time = [time for time, state in found if time == 3600]
    assert on_time
    late = sorted({time for time, state in found if state is not RunState.MISSED and time != 3600})
    assert late == expected
    missed_runs = [
        e.run for e in effects if isinstance(e, KeepRun) and e.run.state is RunState.MISSED
    ]
    (one,) = missed_runs
    assert one.scheduled - START == 3540 - 60 * len(expected)
    assert one.detail.startswith("cron did not run: this and ")


def test_a_year_of_missed_seconds_is_decided_at_once() -> None:
    job = CronJob("a", Schedule("@every 1s"), missed=Missed.ALL, catch_up=5)
    due = due_times(job, START, START + 366 * 86_400)
    assert due.has_more
    assert len(due.late) == 5
    assert len(due.on_time) == 60
    times, has_more = latest(Schedule("0 0 29 2 *"), 0, START, 1)
    assert has_more
    assert Schedule("@daily").shown(times[0]).startswith("2024-02-29")


def test_a_failed_run_is_tried_again_with_backoff() -> None:
    job = replace(MINUTELY, spec=TaskSpec(retries=2, backoff=Backoff(10, 2, 60, 0)))
    board = board_of(job)
    (first,) = launched(at(board, 60))
    update(board, first, Outcome.FAILED, 61)
    assert board.wake_at() == START + 71
    (second,) = launched(at(board, 71))
    assert second == "a.20270115T080100Z.2"
    update(board, second, Outcome.LOST, 72)
    (third,) = launched(at(board, 92))
    assert states(update(board, third, Outcome.FAILED, 93)) == [(60, RunState.FAILED)]


def test_a_retry_does_not_wait_for_a_clock_that_was_moved_back() -> None:
    board = board_of(replace(MINUTELY, spec=TaskSpec(retries=1)))
    (first,) = launched(at(board, 60))
    update(board, first, Outcome.FAILED, 61)
    assert len(launched(at(board, -3600))) == 1


def test_a_task_that_never_ran_is_handed_over_again_and_not_for_ever() -> None:
    board = board_of(MINUTELY)
    (task_id,) = launched(at(board, 60))
    seen, seconds = {task_id}, 60.0
    for _ in range(MAX_DROPS):
        update(board, task_id, Outcome.NEVER_RAN, seconds)
        seconds += 61
        (task_id,) = (each for each in launched(at(board, seconds)) if "0801" in each)
        seen.add(task_id)
    assert len(seen) == MAX_DROPS + 1
    assert states(update(board, task_id, Outcome.NEVER_RAN, seconds))[0] == (60, RunState.FAILED)


def test_a_clock_that_was_moved_back_runs_no_time_again() -> None:
    board = board_of(MINUTELY)
    (task_id,) = launched(at(board, 60))
    update(board, task_id, Outcome.SUCCEEDED, 60)
    assert [at(board, seconds) for seconds in (-7200, 0, 60, 119)] == [[]] * 4
    assert len(launched(at(board, 120))) == 1


def test_updates_of_earlier_attempts_and_of_others_are_ignored() -> None:
    board = board_of(replace(MINUTELY, spec=TaskSpec(retries=1)))
    (first,) = launched(at(board, 60))
    update(board, first, Outcome.FAILED, 61)
    for task_id in (first, "a.20270115T080100Z.9", "b.20270115T080100Z.1", "nonsense"):
        assert update(board, task_id, Outcome.SUCCEEDED, 62) == []


def test_a_task_that_was_only_handed_over_is_handed_over_again_under_its_id() -> None:
    placing = ScheduledRun("a", START, RunState.PLACING)
    board = board_of(MINUTELY, Stored(START, "* * * * * UTC", (placing,)), START + 1)
    assert board.runs_with_task() == [placing]
    assert launched(list(board.on_unknown(placing.task_id, START + 2))) == [placing.task_id]


def test_a_running_task_that_the_master_does_not_know_is_lost() -> None:
    running = ScheduledRun("a", START, RunState.RUNNING, started=float(START))
    board = board_of(MINUTELY, Stored(START, "* * * * * UTC", (running,)), START + 1)
    assert states(list(board.on_unknown(running.task_id, START + 2))) == [(0, RunState.LOST)]


def test_times_of_a_changed_schedule_begin_now() -> None:
    board = Board()
    effects = list(board.load([MINUTELY], {"a": Stored(START, "@hourly UTC")}, START + 5000))
    assert effects == [KeepCursor("a", START + 5000, "* * * * * UTC")]
    assert board.wake_at() == START + 5040


def test_the_task_of_a_job_that_was_removed_is_followed_to_its_end() -> None:
    runs = (ScheduledRun("a", START, RunState.RUNNING), ScheduledRun("a", START + 60))
    board = Board()
    effects = list(board.load([], {"a": Stored(START + 60, "x", runs)}, START + 70))
    assert states(effects) == [(60, RunState.SKIPPED)]
    assert states(update(board, runs[0].task_id, Outcome.SUCCEEDED, 80)) == [(0, RunState.FINISHED)]
    assert board.jobs == {}
