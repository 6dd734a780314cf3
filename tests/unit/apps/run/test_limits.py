"""The limit of a run's wait for resources."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from croupier.apps.run.job import Job
from croupier.apps.run.job_run import Limits, limit_over
from croupier.apps.run.launcher import Launcher
from croupier.cli.flags import Target
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.task import TaskState, TaskStatus
from croupier.net.address import Address
from croupier.sdk import Conflict

WAITING_S = 0.2


async def reason() -> str:
    return "no agents"


class Unused:
    """An argument that these tests do not use, such as the output of tasks."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_args, **_more: None


@pytest.fixture
async def launcher() -> Launcher:
    job = Job(words=("x",), unit=Resources.parse("cpus:1;mem:1GB"))
    unused: Any = Unused()
    return Launcher(job, Target((Address("127.0.0.1", 9),)), unused, unused, print)


@pytest.mark.parametrize("state", [TaskState.DROPPED, TaskState.UNKNOWN, None])
async def test_the_wait_limit_starts_when_a_copy_becomes_pending(
    launcher: Launcher, state: TaskState | None
) -> None:
    loop = asyncio.get_running_loop()
    limit = asyncio.create_task(limit_over(Limits(waiting_s=WAITING_S), launcher, reason))
    launcher.progress.launch(1)
    await launcher.on_update(
        TaskStatus(FrameworkId("f"), TaskId("run-0"), AgentId("a1"), TaskState.STAGING)
    )
    await asyncio.sleep(1.5 * WAITING_S)
    assert not limit.done(), "no copy is pending"
    waits_since = loop.time()
    task_id = TaskId("run-0")
    if state is None:
        launcher._errors[task_id] = Conflict("the queue is full")
    status = TaskStatus(FrameworkId("f"), task_id, AgentId("a1"), state or TaskState.UNKNOWN)
    await launcher.on_update(status)
    assert launcher.progress.pending == 1
    assert (await limit).endswith(": no agents")
    assert loop.time() - waits_since >= WAITING_S
