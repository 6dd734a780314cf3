"""The output of tasks whose agent has too many readers."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from croupier.apps.run import output
from croupier.apps.run.output import Outputs
from croupier.apps.run.output_sources import Addresses, Links
from croupier.cli.flags import Target
from croupier.cli.printer import Printer
from croupier.net.address import Address
from tests.harness.eventually import eventually
from tests.harness.task_outputs import TaskOutputs, serving_outputs


class Known(Addresses):
    """Addresses that do not change."""

    async def refresh(self) -> None:
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
    addresses = Known(Target((Address("127.0.0.1", 9),)))
    addresses.learn("a1", agent.address)
    printer = Printer(shown.out, io.BytesIO(), prefixed=False)
    try:
        links = Links(Target((Address("127.0.0.1", 9),)))
        async with Outputs(printer, addresses, links, shown.warnings.append) as outputs:
            outputs.follow(0, "a1", "f", "run-0")
            outputs.on_ended("run-0", has_run=True)
            yield outputs
    finally:
        printer.close()


async def test_output_of_a_busy_agent_is_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(output, "LAST_S", 0.05)
    shown = Shown()
    async with serving_outputs() as agent, ended_task(agent, shown) as outputs:
        await eventually(lambda: len(agent.asked) >= 6 or shown.warnings)
        agent.status = 200
        await outputs.finished()
    assert (shown.out.getvalue(), shown.warnings) == (b"hello\n", [])


async def test_an_agent_that_stays_busy_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(output, "LAST_S", 0.05)
    monkeypatch.setattr(output, "BUSY_S", 0.1, raising=False)
    shown = Shown()
    async with serving_outputs() as agent, ended_task(agent, shown) as outputs:
        await outputs.finished()
    problem = "may be cut short: HTTP 503"
    assert sorted(shown.warnings) == [f"run-0: {s} {problem}" for s in ("stderr", "stdout")]
