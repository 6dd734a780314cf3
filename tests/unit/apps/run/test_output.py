"""The output of busy agents, and how long `croupier run` waits."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from croupier.apps.run import output
from croupier.apps.run.job import Job
from croupier.apps.run.job_run import Limits, limit_over
from croupier.apps.run.launcher import Launcher
from croupier.apps.run.output import Outputs
from croupier.apps.run.output_sources import OutputSources, TaskKey
from croupier.cli.flags import Target
from croupier.cli.printer import Printer
from croupier.model.resources import Resources
from croupier.model.task import TaskState
from croupier.net.address import Address
from croupier.sdk import Conflict
from tests.harness.app_engine import status_of
from tests.harness.eventually import eventually
from tests.harness.task_outputs import TaskOutputs, serving_outputs


class Known(OutputSources):
    """Addresses that do not change."""

    async def refresh(self, key: TaskKey) -> None:
        """Do nothing: there is no master."""


class Shown:
    """The output and the warnings of a run."""

    def __init__(self) -> None:
        self.out, self.warnings = io.BytesIO(), list[str]()


@asynccontextmanager
async def ended_task(agent: TaskOutputs, shown: Shown) -> AsyncIterator[Outputs]:
    """Follow a task that has ended, while its agent has too many readers."""
    agent.texts["run-0", "stdout"] = b"hello\n"
    agent.status = 503
    sources = Known(Target((Address("127.0.0.1", 9),)))
    sources.learn("a1", agent.address)
    printer = Printer(shown.out, io.BytesIO(), prefixed=False)
    async with Outputs(printer, sources, shown.warnings.append) as outputs:
        outputs.follow(0, "a1", "f", "run-0")
        outputs.on_ended("run-0", has_run=True)
        yield outputs


async def test_output_of_a_busy_agent_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "LAST_S", 0.05)
    shown = Shown()
    async with serving_outputs() as agent, ended_task(agent, shown) as outputs:
        await eventually(lambda: len(agent.asked) >= 6 or shown.warnings)
        agent.status = 200
        await outputs.finished()
    assert (shown.out.getvalue(), shown.warnings) == (b"hello\n", [])


async def test_an_agent_that_stays_busy_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "LAST_S", 0.05)
    monkeypatch.setattr(output, "BUSY_S", 0.1, raising=False)
    shown = Shown()
    async with serving_outputs() as agent, ended_task(agent, shown) as outputs:
        await outputs.finished()
    problem = "may be cut short: too many readers"
    assert sorted(shown.warnings) == [f"run-0: {s} {problem}" for s in ("stderr", "stdout")]


async def test_output_of_the_next_run_of_a_task_is_printed_once() -> None:
    shown = Shown()
    async with serving_outputs() as agent, ended_task(agent, shown) as outputs:
        await eventually(lambda: len(agent.asked) >= 2)
        outputs.on_requeued("run-0")
        outputs.follow(0, "a1", "f", "run-0")
        outputs.on_ended("run-0", has_run=True)
        agent.status = 200
        await outputs.finished()
    assert shown.out.getvalue() == b"hello\n"
    assert all("may be cut short" in warning for warning in shown.warnings)


# The limit of a run's wait for resources.


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
    return Launcher(job, Target((Address("127.0.0.1", 9),)), unused, print)


@pytest.mark.parametrize("state", [TaskState.DROPPED, TaskState.UNKNOWN, None])
async def test_the_wait_limit_starts_when_a_copy_becomes_pending(
    launcher: Launcher, state: TaskState | None
) -> None:
    loop = asyncio.get_running_loop()
    limit = asyncio.create_task(limit_over(Limits(waiting_s=WAITING_S), launcher, reason))
    launcher.progress.launch(1)
    await launcher.on_update(status_of(TaskState.STAGING))
    await asyncio.sleep(1.5 * WAITING_S)
    assert not limit.done(), "no copy is pending"
    waits_since = loop.time()
    if state is None:
        launcher._errors["run-0"] = Conflict("the queue is full")
    await launcher.on_update(status_of(state or TaskState.UNKNOWN))
    assert launcher.progress.pending == 1
    assert (await limit).endswith(": no agents")
    assert loop.time() - waits_since >= WAITING_S
