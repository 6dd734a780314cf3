"""Preemption and declines with real daemons and tasks, and the output of `croupier why`."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from croupier.sdk import Framework, Offer, PreemptRequest, Resources, Task
from tests.harness.cluster import real_cluster
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


async def test_a_role_with_preemption_off_is_not_preempted(local: Local) -> None:
    async with AsyncExitStack() as stack:
        await croupier(local, "quota", "set", "batch", "--preemption", "off")
        batch = Steady("batch", local.master, UNIT, LONG)
        await stack.enter_async_context(at_work(batch))

        async def is_full() -> bool:
            return await running(local) == {"batch": CPUS}

        await eventually(is_full, 20, what="batch has everything")
        late = Steady("late", local.master, UNIT, LONG)
        await stack.enter_async_context(at_work(late))
        await asyncio.sleep(AGAIN_S)
        assert await running(local) == {"batch": CPUS, "late": 0}
        await croupier(local, "quota", "remove", "batch")

        async def is_even() -> bool:
            return await running(local) == {"batch": CPUS // 2, "late": CPUS // 2}

        await eventually(is_even, 30, what="both have half")


class Decliner(Framework):
    """A framework that declines everything with a short filter."""

    def __init__(self, name: str, master: str, offered: list[str]) -> None:
        super().__init__(name=name, role=name, master=master, failover_timeout_s=5)
        self.offered = offered
        self.subscribed = asyncio.Event()

    async def on_subscribed(self, framework_id: str) -> None:
        self.subscribed.set()

    async def on_offers(self, offers: list[Offer]) -> None:
        for offer in offers:
            self.offered.append(self.name)
            await self.decline(offer, refuse_s=0.05)


class Needy(Decliner):
    """A framework that accepts each offer, launches one task on it, and suppresses offers."""

    async def on_offers(self, offers: list[Offer]) -> None:
        for offer in offers:
            self.offered.append(self.name)
            task = Task(["sleep", str(LONG)], resources=Resources.parse("cpus:1;mem:64MB"))
            await self.accept(offer, [task])
        await self.suppress()


async def test_a_willing_framework_gets_the_agent_after_at_most_ten_decliners(
    tmp_path: Path,
) -> None:
    """Ten frameworks keep declining one agent; a willing one gets it after at most ten others.

    It has a running task and they have none, so by their shares all ten precede it.
    """
    offered: list[str] = []
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(real_cluster(tmp_path, "cpus:4;mem:2GB;disk:1GB"))
        needy = Needy("needy", cluster.master, offered)
        await stack.enter_async_context(at_work(needy))

        async def has_some() -> bool:
            return await cluster.running() == {"needy": 1}

        await eventually(has_some, 20, what="needy has a running task")
        names = [f"decliner-{number}" for number in range(10)]
        for name in names:
            await stack.enter_async_context(at_work(Decliner(name, cluster.master, offered)))

        async def all_decline() -> bool:
            return all(offered.count(name) >= 3 for name in names)

        await eventually(all_decline, 30, what="all ten declined three times")
        before = len(offered)
        await needy.revive()

        async def is_served() -> bool:
            return "needy" in offered[before:]

        await eventually(is_served, 20, what="needy is offered the agent")
        others = offered[before:].index("needy")
        assert others <= len(names), offered[before:]

        async def has_more() -> bool:
            return (await cluster.running())["needy"] == 2

        await eventually(has_more, 20, what="needy runs another task")
