"""Preemption and declines with real daemons and tasks, and the output of `croupier why`."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from croupier.sdk import PreemptRequest
from tests.harness.eventually import eventually
from tests.harness.real_local import Local, running_local
from tests.harness.steady import Steady, at_work

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

CPUS = 8
UNIT = "cpus:1;mem:64MB"
LONG = 600.0
# Preemption would show by then: longer than the timeouts and the grace that the master has.
AGAIN_S = 3.0


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    size = ("--agents", "1", "--cpus", str(CPUS), "--mem", "8GB", "--disk", "1GB")
    hurry = (
        "--preemption", "--starvation-timeout", "1", "--guarantee-timeout", "0.5",
        "--preemption-grace", "1",
    )  # fmt: skip
    with running_local(tmp_path, *size, "--", *hurry) as local:
        yield local


async def croupier(local: Local, *words: str) -> str:
    """Run a command without blocking the test's frameworks; return its output."""
    done: subprocess.CompletedProcess[str] = await asyncio.to_thread(local.croupier, *words)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


async def running(local: Local) -> dict[str, int]:
    """Return the number of unfinished tasks of each framework name."""
    listed = json.loads(await croupier(local, "frameworks", "--json"))
    return {view["name"]: view["tasks"] for view in listed}


class Polite(Steady):
    """A framework that kills the tasks that a preemption request names."""

    def __init__(self, name: str, master: str, unit: str, seconds: float, role: str) -> None:
        super().__init__(name, master, unit, seconds, role=role)
        self.asked: list[PreemptRequest] = []

    async def on_preempt(self, request: PreemptRequest) -> None:
        self.asked.append(request)
        for task_id in request.task_ids:
            await self.kill(task_id)


async def test_a_starving_framework_gets_its_share_and_no_more(local: Local) -> None:
    """Tasks that never end fill the cluster; a later framework still gets half of it."""
    async with AsyncExitStack() as stack:
        early = Steady("early", local.master, UNIT, LONG)
        await stack.enter_async_context(at_work(early))

        async def is_full() -> bool:
            return await running(local) == {"early": CPUS}

        await eventually(is_full, 20, what="early has everything")
        late = Steady("late", local.master, UNIT, LONG)
        await stack.enter_async_context(at_work(late))

        async def is_asked() -> bool:
            return "room is being made" in await croupier(local, "why", "late")

        await eventually(is_asked, 20, what="why says that room is being made")

        async def is_even() -> bool:
            return await running(local) == {"early": CPUS // 2, "late": CPUS // 2}

        await eventually(is_even, 30, what="both have half")
        ended = json.loads(await croupier(local, "tasks", "--json"))
        reasons = {task["reason"] for task in ended if task["state"] == "KILLED"}
        assert reasons == {"PREEMPTED"}, ended
        # No framework is below its share any more, so preemption stops.
        await asyncio.sleep(AGAIN_S)
        assert await is_even()


async def test_a_guarantee_is_taken_back_within_its_timeout(local: Local) -> None:
    """The master first asks the framework above its share, which kills its own tasks."""
    async with AsyncExitStack() as stack:
        batch = Polite("batch", local.master, UNIT, LONG, role="batch/nightly")
        await stack.enter_async_context(at_work(batch))

        async def is_full() -> bool:
            return await running(local) == {"batch": CPUS}

        await eventually(is_full, 20, what="batch has everything")
        await croupier(local, "quota", "set", "prod", "--guarantee", "cpus:6")
        await croupier(local, "weights", "set", "batch", "9")
        web = Steady("web", local.master, UNIT, LONG, role="prod/web")
        await stack.enter_async_context(at_work(web))

        async def is_met() -> bool:
            return await running(local) == {"batch": CPUS - 6, "web": 6}

        await eventually(is_met, 30, what="prod has what it was guaranteed")
        assert batch.asked
        assert "below a guarantee" in batch.asked[0].reason
        reasons = await croupier(local, "why", "batch")
        # Nothing is below its guarantee now: what is held is held by right.
        assert "in use, 1 agent" in reasons, reasons
