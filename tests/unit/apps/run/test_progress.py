"""The states of copies, and the exit code of all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.apps.run.launcher import MAX_DROPS, Progress, exit_code_of, warning_of
from croupier.model.ids import AgentId
from croupier.model.task import Reason, TaskState, TaskStatus
from tests.harness.app_engine import status_of


def is_over(progress: Progress) -> bool:
    return progress.is_over


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        (status_of(TaskState.FINISHED, exit_code=0), 0),
        (status_of(TaskState.FINISHED), 0),
        (status_of(TaskState.FAILED, exit_code=3), 3),
        (status_of(TaskState.FAILED, exit_code=0), 1),
        (status_of(TaskState.FAILED), 1),
        (status_of(TaskState.FAILED, signal=9), 137),
        (status_of(TaskState.KILLED, signal=15), 143),
        (status_of(TaskState.FAILED, signal=9, reason=Reason.MEMORY_LIMIT), 137),
        (status_of(TaskState.FAILED, signal=15, reason=Reason.TIMED_OUT), 124),
        (status_of(TaskState.KILLED, exit_code=0), 0),
        (status_of(TaskState.KILLED), 1),
        (status_of(TaskState.LOST), 1),
        (status_of(TaskState.GONE), 1),
        (status_of(TaskState.ERROR), 1),
    ],
)
def test_exit_codes_are_those_of_a_shell(ending: TaskStatus, code: int) -> None:
    assert exit_code_of(ending) == code


@pytest.mark.parametrize(
    "ending",
    [
        status_of(TaskState.FINISHED, exit_code=0),
        status_of(TaskState.FAILED, exit_code=3),
        status_of(TaskState.FAILED, signal=9),
    ],
)
def test_an_exit_of_the_command_itself_is_not_a_warning(ending: TaskStatus) -> None:
    assert warning_of("run-0", ending) is None


def test_any_other_end_is_a_warning_with_its_reason() -> None:
    ending = status_of(
        TaskState.KILLED, signal=15, reason=Reason.KILLED_BY_OPERATOR, message="by hand"
    )
    assert warning_of("run-0", ending) == "run-0: KILLED (KILLED_BY_OPERATOR): by hand"
    assert warning_of("run-0", status_of(TaskState.LOST)) == "run-0: LOST"
    over = status_of(TaskState.FAILED, signal=9, reason=Reason.MEMORY_LIMIT, message="1 GB of 1 GB")
    assert warning_of("run-0", over) == "run-0: FAILED (MEMORY_LIMIT): 1 GB of 1 GB"


def test_copies_are_launched_lowest_first_up_to_the_count() -> None:
    progress = Progress(3)
    assert [copy.task_id for copy in progress.launch(2)] == ["run-0", "run-1"]
    assert len(progress._pending) == 1
    assert [copy.task_id for copy in progress.launch(9)] == ["run-2"]
    assert progress.launch(1) == []


def test_a_queued_copy_is_pending_until_it_has_an_agent() -> None:
    progress = Progress(2)
    progress.launch(2)
    assert progress.pending == 2
    progress.on_status(status_of(TaskState.STAGING, "run-1"))
    assert progress.pending == 1
    progress.on_status(replace(status_of(TaskState.KILLED), agent_id=AgentId("")))
    assert progress.pending == 0
    assert not is_over(progress)


def test_the_exit_code_is_the_first_by_index() -> None:
    progress = Progress(3)
    progress.launch(3)
    progress.on_status(status_of(TaskState.FAILED, "run-2", exit_code=5))
    assert not is_over(progress)
    progress.on_status(status_of(TaskState.FAILED, "run-1", exit_code=4))
    progress.on_status(status_of(TaskState.FINISHED, "run-0", exit_code=0))
    assert is_over(progress)
    assert progress.exit_code == 4


def test_a_dropped_copy_is_retried_under_a_new_id_up_to_a_limit() -> None:
    progress = Progress(1)
    for number in range(MAX_DROPS):
        (copy,) = progress.launch(1)
        assert copy.task_id == ("run-0" if number == 0 else f"run-0.{number + 1}")
        assert progress.on_status(status_of(TaskState.DROPPED, copy.task_id)) is None
        assert progress.pending == 1
    (copy,) = progress.launch(1)
    assert progress.on_status(status_of(TaskState.DROPPED, copy.task_id)) is not None
    assert is_over(progress)
    assert progress.exit_code == 1


def test_updates_of_an_earlier_try_change_nothing() -> None:
    progress = Progress(1)
    progress.launch(1)
    progress.on_status(status_of(TaskState.DROPPED, "run-0"))
    progress.launch(1)
    progress.on_status(status_of(TaskState.FAILED, "run-0", exit_code=9))
    assert not is_over(progress)
    assert [copy.task_id for copy in progress.live] == ["run-0.2"]


def test_a_task_that_the_master_does_not_know_never_ran() -> None:
    progress = Progress(1)
    progress.launch(1)
    progress.on_status(status_of(TaskState.UNKNOWN))
    assert progress.pending == 1


def test_an_unreachable_copy_is_reported_and_stays_launched() -> None:
    progress = Progress(1)
    progress.launch(1)
    assert "unreachable" in (progress.on_status(status_of(TaskState.UNREACHABLE)) or "")
    assert not is_over(progress)


def test_no_copy_is_pending_after_giving_up() -> None:
    progress = Progress(2)
    progress.launch(1)
    progress.give_up()
    assert progress.pending == 0
    assert not is_over(progress)
    progress.on_status(status_of(TaskState.DROPPED, "run-0"))
    assert is_over(progress)
    assert progress.pending == 0


def test_a_requested_kill_is_not_a_warning() -> None:
    progress = Progress(2)
    progress.launch(2)
    assert progress.on_status(status_of(TaskState.KILLED, "run-1", signal=15)) == "run-1: KILLED"
    progress.give_up()
    assert progress.on_status(status_of(TaskState.KILLED, signal=15)) is None
    assert progress.exit_code == 143


def gang_of(count: int) -> Progress:
    """Return the progress of a gang whose copies all run."""
    progress = Progress(count, is_gang=True)
    progress.name_copies("x")
    for copy in progress.launch(count):
        progress.on_status(status_of(TaskState.RUNNING, copy.task_id, agent_id="A"))
    return progress


def test_a_gang_has_the_code_of_the_copy_that_ended_it() -> None:
    progress = gang_of(3)
    progress.on_status(status_of(TaskState.FAILED, "x-2", exit_code=3))
    for name in ("x-0", "x-1"):
        killing = status_of(TaskState.KILLING, name, reason=Reason.GANG_ENDED)
        assert progress.on_status(killing) is None
        assert progress.find(name) is not None
        killed = status_of(TaskState.KILLED, name, reason=Reason.GANG_ENDED, signal=15)
        assert progress.on_status(killed) is None
    assert progress.is_over
    assert progress.exit_code == 3


def test_a_gang_that_starts_again_is_told_of_once() -> None:
    progress = gang_of(2)
    why = "FAILED on agent A: exit code 3; restart 1 of 2 of its gang"
    queued = status_of(TaskState.QUEUED, "x-1", reason=Reason.GANG_ENDED, message=why)
    assert progress.on_status(queued) == f"x-1: QUEUED (GANG_ENDED): {why}"
    other = status_of(TaskState.QUEUED, "x-0", reason=Reason.GANG_ENDED, message="KILLED")
    assert progress.on_status(other) is None
    assert progress.pending == 2
    for name in ("x-0", "x-1"):
        progress.on_status(status_of(TaskState.STAGING, name, agent_id="A"))
    assert progress.on_status(queued) is not None
    assert not progress.is_over


def test_a_gang_ends_when_an_agent_is_unreachable_and_it_does_not_start_again() -> None:
    progress = gang_of(2)
    warning = progress.on_status(status_of(TaskState.UNREACHABLE, "x-1", agent_id="A"))
    assert warning == "x-1: its agent A is unreachable; its gang ends"
    progress.on_status(status_of(TaskState.KILLED, "x-0", reason=Reason.GANG_ENDED, signal=15))
    assert (progress.is_over, progress.exit_code) == (True, 1)


@pytest.mark.parametrize("names", [("x-0", "x-1"), ("x-1", "x-0")])
def test_a_gang_of_which_the_master_knows_a_part_ends(names: tuple[str, str]) -> None:
    lost, known = names
    progress = gang_of(2)
    progress.on_status(status_of(TaskState.UNKNOWN, lost))
    assert progress.is_torn
    killed = status_of(TaskState.KILLED, known, reason=Reason.KILLED_BY_FRAMEWORK, exit_code=0)
    progress.on_status(killed)
    assert (progress.is_torn, progress.is_over, progress.exit_code) == (False, True, 1)
    progress = gang_of(2)
    progress.on_status(status_of(TaskState.FINISHED, known, exit_code=0))
    progress.on_status(status_of(TaskState.UNKNOWN, lost))
    assert (progress.is_torn, progress.is_over, progress.exit_code) == (False, True, 1)


def test_a_gang_is_submitted_only_as_a_whole() -> None:
    progress = Progress(2, is_gang=True)
    progress.name_copies("x")
    progress.launch(2)
    progress.on_status(status_of(TaskState.UNKNOWN, "x-0"))
    assert progress.launch(2) == []
    progress.on_status(status_of(TaskState.UNKNOWN, "x-1"))
    assert not progress.is_torn
    assert len(progress.launch(2)) == 2
