"""A preempted task that is to be requeued runs again, on a cluster of real processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.eventually import eventually
from tests.harness.real_local import Local, running_local
from tests.harness.steady import Steady, at_work

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

CPUS = 4
# Marks each run of a task in a directory, and runs until it is over, or is to save its state.
PROGRAM = (
    "trap 'touch {0}/$CROUPIER_TASK_ID.saved; exit 75' USR1;"
    "n=1; while test -e {0}/$CROUPIER_TASK_ID.$n; do n=$((n + 1)); done;"
    " touch {0}/$CROUPIER_TASK_ID.$n; echo run $n;"
    " while ! test -e {0}/over; do sleep 0.1; done"
)


@pytest.fixture
def preempting(tmp_path: Path) -> Iterator[Local]:
    size = ("--agents", "1", "--cpus", str(CPUS), "--mem", "4GB", "--disk", "1GB")
    hurry = ("--preemption", "--starvation-timeout", "0.5", "--preemption-grace", "60")
    with running_local(tmp_path, *size, "--", *hurry) as running:
        yield running


async def listed(local: Local, kind: str) -> list[dict[str, Any]]:
    done = await asyncio.to_thread(local.croupier, kind, "--json")
    assert done.returncode == 0, done.stderr
    views: list[dict[str, Any]] = json.loads(done.stdout)
    return views


async def test_preempted_tasks_of_a_run_are_queued_again(preempting: Local, tmp_path: Path) -> None:
    """Half of the tasks give way to a later framework, and run again once it has gone."""
    marks = tmp_path / "marks"
    marks.mkdir()
    words = (
        "-n",
        str(CPUS),
        "--requeue",
        "--checkpoint-signal",
        "USR1",
        "--name",
        "early",
        "--timeout",
        "150",
        "--shell",
    )
    command = ("run", *words, "--", PROGRAM.format(marks))
    run = asyncio.create_task(asyncio.to_thread(preempting.croupier, *command, timeout_s=200))
    try:

        async def have_begun() -> bool:
            return len(list(marks.glob("*.1"))) == CPUS

        await eventually(have_begun, 60, what="all tasks run")
        late = Steady("late", preempting.master, "cpus:1;mem:64MB", seconds=600)
        async with at_work(late):

            async def have_given_way() -> bool:
                tasks = await listed(preempting, "tasks")
                waiting = [each for each in tasks if each["state"] == "QUEUED"]
                return [each["requeues"] >= 1 for each in waiting] == [True] * (CPUS // 2)

            await eventually(have_given_way, 60, what="two tasks wait again")
        await eventually(lambda: _runs(marks, 2) >= CPUS // 2, 60, what="they run again")
    finally:
        (marks / "over").touch()
        done = await run
    assert done.returncode == 0, done.stderr
    assert len(list(marks.glob("*.saved"))) == _runs(marks, 2)
    again = [line for line in done.stdout.splitlines() if line.endswith("] run 2")]
    assert len(again) == _runs(marks, 2), done.stdout
    assert done.stderr.count("QUEUED (PREEMPTED)") >= CPUS // 2, done.stderr


def _runs(marks: Path, number: int) -> int:
    """Return how many tasks have begun a run of this number."""
    return len(list(marks.glob(f"*.{number}")))
