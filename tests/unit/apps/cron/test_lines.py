"""Lines about runs, and what updates mean for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.apps.cron.core.job import CronJob, RunState, ScheduledRun
from croupier.apps.cron.core.schedule import Schedule
from croupier.apps.cron.framework import detail_of
from croupier.apps.cron.listing import first_line, line_of, result_of
from croupier.sdk import Reason, TaskState, TaskStatus
from tests.harness.app_engine import status_of

RUN = ScheduledRun("a", 0)
S = RunState


def test_the_first_line_names_the_job_that_runs_next() -> None:
    jobs = [CronJob("nightly", Schedule("30 2 * * *")), CronJob("probe", Schedule("@every 30s"))]
    assert first_line(jobs, 3) == "running 2 jobs; the next is probe at 1970-01-01 00:00:30 UTC"
    assert first_line(jobs[:1], 3).startswith("running 1 job; the next is nightly at 1970-01-01 02")


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (RUN, "waits for an earlier run"),
        (replace(RUN, attempt=2, detail="exit code 3"), "exit code 3; it is tried again"),
        (replace(RUN, state=S.PLACING), "placing"),
        (replace(RUN, state=S.PLACING, attempt=2), "placing, attempt 2"),
        (replace(RUN, state=S.RUNNING), "runs"),
        (replace(RUN, state=S.RUNNING, is_replaced=True), "is being replaced"),
        (replace(RUN, state=S.FINISHED, started=5.0, ended=65.0), "finished after 1 min"),
        (RUN.end(S.SKIPPED, 1.0, "two runs wait"), "skipped: two runs wait"),
        (RUN.end(S.LOST, 1.0), "lost"),
    ],
)
def test_a_line_says_what_became_of_a_run(run: ScheduledRun, text: str) -> None:
    assert line_of(run, Schedule("@daily")) == f"a of 1970-01-01 00:00:00 UTC: {text}"
    assert line_of(run, None) == f"a of 0: {text}"


def test_the_result_of_a_run() -> None:
    assert result_of(replace(RUN, state=S.FINISHED, exit_code=0)) == ""
    assert result_of(RUN.end(S.FAILED, 1.0, "signal 9")) == "signal 9"


T = TaskState


@pytest.mark.parametrize(
    ("update", "detail"),
    [
        (status_of(T.FINISHED, exit_code=0), ""),
        (status_of(T.FAILED, exit_code=3), "exit code 3"),
        (status_of(T.FAILED, signal=9), "signal 9"),
        (
            status_of(T.FAILED, reason=Reason.TIMED_OUT, message="after 5 s"),
            "FAILED TIMED_OUT: after 5 s",
        ),
        (status_of(T.KILLED, reason=Reason.PREEMPTED), "KILLED PREEMPTED"),
        (status_of(T.GONE), "GONE"),
    ],
)
def test_the_detail_of_an_end(update: TaskStatus, detail: str) -> None:
    assert detail_of(update) == detail
