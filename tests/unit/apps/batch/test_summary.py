"""What is printed of plans and runs."""

from __future__ import annotations

import pytest

from croupier.apps.batch.display import (
    Display,
    plan_lines,
    progress_text,
    summary_lines,
)
from croupier.apps.batch.job import batch_of
from croupier.apps.batch.machine import BatchTasks
from croupier.apps.batch.plan import JobPlan
from croupier.apps.batch.runner import last_lines, reason_text
from croupier.apps.controller.outcomes import Outcome
from croupier.apps.job_file.section import section_of_text
from croupier.model.task import Reason, TaskState, TaskStatus
from tests.harness.app_engine import status_of


def machine(text: str) -> BatchTasks:
    return BatchTasks(JobPlan(batch_of(section_of_text(text), "job")))


def test_a_plan_is_printed_in_an_order_in_which_it_can_run() -> None:
    found = machine("""
        [tasks.last]
        shell = "echo  a\\n echo b"
        after = ["work"]
        after_any = "first"
        [tasks.work]
        array = 3
        command = ["work", "{i}"]
        after = "first"
        retries = 2
        [tasks.first]
        command = ["x"]
        resources = "cpus:2"
    """)
    assert list(plan_lines(found.plan)) == [
        "job: 5 tasks in 3 steps, 1 of them an array",
        "  first  cpus:2;mem:128MB; x",
        "  work   3x cpus:1;mem:128MB; after first; 2 retries; work {i}",
        "  last   cpus:1;mem:128MB; after work; after any end of first; echo a echo b",
    ]


def test_failures_come_first() -> None:
    found = machine("""
        [tasks.good]
        shell = "x"
        [tasks.bad]
        shell = "x"
        array = 25
        [tasks.next]
        shell = "x"
        after = "bad[3]"
        [tasks.more]
        shell = "x"
        array = 2
        after = "next"
    """)
    for task in found.take(100):
        is_good = task.node.name == "good"
        if task.node.name == "bad[0]":
            task.report("A1", "exit code 3", "one\ntwo")
        found.on_end(task, Outcome.SUCCEEDED if is_good else Outcome.FAILED)
    lines = list(summary_lines(found, 61.0))
    assert lines[:4] == [
        "FAILED   bad[0]: exit code 3, on A1",
        "    | one",
        "    | two",
        "FAILED   bad[1]: for an unknown reason",
    ]
    assert lines[-3:] == [
        "FAILED   5 more",
        "SKIPPED  3 tasks, because bad[3] failed",
        "1 of 29 done, 25 failed, 3 skipped, in 1 min 1 s",
    ]


def test_progress_names_what_is_not_zero() -> None:
    found = machine(
        "[tasks.a]\nshell = 'x'\narray = 5\nretries = 1\n[tasks.b]\nshell = 'x'\nafter = 'a'"
    )
    taken = found.take(3)
    found.on_end(taken[0], Outcome.SUCCEEDED)
    found.on_end(taken[1], Outcome.FAILED)
    assert progress_text(found, 1) == "1 of 6 done, 1 running, 1 to be tried again, 3 waiting"


@pytest.mark.parametrize(
    ("update", "text"),
    [
        (status_of(TaskState.FAILED, exit_code=3), "exit code 3"),
        (status_of(TaskState.FAILED, signal=9), "signal 9"),
        (
            status_of(TaskState.FAILED, reason=Reason.TIMED_OUT, signal=15, message="after 3 s"),
            "timed out: after 3 s",
        ),
        (status_of(TaskState.KILLED, reason=Reason.PREEMPTED), "preempted"),
        (status_of(TaskState.LOST), "lost"),
        (
            status_of(TaskState.UNKNOWN),
            "its result is lost: the cluster does not know the task any more",
        ),
    ],
)
def test_reasons(update: TaskStatus, text: str) -> None:
    assert reason_text(update) == text


def test_the_last_lines_are_printable_and_of_stderr_if_there_are_any() -> None:
    out = "".join(f"line {n}\n" for n in range(30)).encode()
    assert last_lines(out, b" \n").splitlines() == [f"line {n}" for n in range(20, 30)]
    assert last_lines(out, b"a\tb\x1b[31m\xff\n") == "a    b\\x1b[31m\ufffd"
    assert last_lines(b"", b"") == ""


def test_without_a_terminal_progress_is_lines(capsys: pytest.CaptureFixture[str]) -> None:
    found = machine("[tasks.a]\nshell = 'x'")
    with Display(found, is_terminal=False) as display:
        display.show(0)
        display.note("a\x1b[31m happened")
        display._shown_at -= 100
        display.show(0)
        display.show(0)
    assert capsys.readouterr().err.splitlines() == [
        "croupier batch: a\\x1b[31m happened",
        "croupier batch: 0 of 1 done, 1 waiting",
    ]


def test_on_a_terminal_progress_is_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    found = machine("[tasks.a]\nshell = 'x'")
    with Display(found, is_terminal=True) as display:
        display.show(0)
        display.note("[red]a\x1b[31m[/red] happened")
    assert "croupier batch: [red]a\\x1b[31m[/red] happened" in capsys.readouterr().err
