"""The table from the end of a task to what it means."""

from __future__ import annotations

import pytest

from croupier.apps.controller.outcomes import Outcome, is_blameless, outcome_of, state_text
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.task import TERMINAL, Reason, TaskState, TaskStatus


def status(state: TaskState, **more: object) -> TaskStatus:
    return TaskStatus(FrameworkId("F"), TaskId("t"), AgentId("A"), state, **more)  # type: ignore[arg-type]


def test_every_end_is_in_the_table_and_nothing_else() -> None:
    ended = {state for state in TaskState if outcome_of(status(state)) is not None}
    assert ended == TERMINAL | {TaskState.UNKNOWN}


@pytest.mark.parametrize(
    ("update", "outcome"),
    [
        (status(TaskState.UNKNOWN, decided_in_s=3.0), None),
        (status(TaskState.UNKNOWN), Outcome.LOST),
        (status(TaskState.FINISHED), Outcome.SUCCEEDED),
        (status(TaskState.FAILED), Outcome.FAILED),
        (status(TaskState.ERROR), Outcome.REFUSED),
        (status(TaskState.DROPPED), Outcome.NEVER_RAN),
        (status(TaskState.DROPPED, reason=Reason.TASK_INVALID), Outcome.REFUSED),
        (status(TaskState.GONE), Outcome.LOST),
        (status(TaskState.KILLED, reason=Reason.PREEMPTED, signal=15), Outcome.FAILED),
        (status(TaskState.KILLED, reason=Reason.KILLED_BY_FRAMEWORK), Outcome.STOPPED),
        # The program says that its work is done, although it was killed.
        (status(TaskState.KILLED, reason=Reason.PREEMPTED, exit_code=0), Outcome.SUCCEEDED),
        (
            status(TaskState.KILLED, reason=Reason.KILLED_BY_FRAMEWORK, exit_code=0),
            Outcome.SUCCEEDED,
        ),
        # A limit is no request to end.
        (status(TaskState.FAILED, reason=Reason.TIMED_OUT, exit_code=0), Outcome.FAILED),
    ],
)
def test_what_an_end_means(update: TaskStatus, outcome: Outcome | None) -> None:
    assert outcome_of(update) is outcome


def test_a_task_that_the_cluster_never_had_has_not_run() -> None:
    assert outcome_of(status(TaskState.UNKNOWN), was_accepted=False) is Outcome.NEVER_RAN


def test_who_is_to_blame() -> None:
    assert is_blameless(status(TaskState.LOST))
    assert is_blameless(status(TaskState.KILLED, reason=Reason.AGENT_DRAINING))
    assert not is_blameless(status(TaskState.FAILED, exit_code=1))
    assert not is_blameless(status(TaskState.FAILED, reason=Reason.MEMORY_LIMIT))


def test_a_state_has_its_reason_and_message() -> None:
    update = status(TaskState.KILLED, reason=Reason.KILLED_BY_OPERATOR, message="by hand")
    assert state_text(update) == "KILLED (KILLED_BY_OPERATOR): by hand"
    assert state_text(status(TaskState.GONE_BY_OPERATOR, reason=Reason.GONE_BY_OPERATOR)) == (
        "GONE_BY_OPERATOR"
    )
