"""Fair shares, weights, limits, guarantees and preemption on clusters of real processes."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from croupier.net.address import Address
from croupier.net.transport import make_channel
from croupier.sdk import PreemptRequest
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.harness.cluster import Cluster, log_events, real_cluster
from tests.harness.eventually import eventually
from tests.harness.real_local import Local, running_local
from tests.harness.steady import Steady, at_work

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

PAPER = ("cpus:9;mem:18GB;disk:1GB", {"A": "cpus:1;mem:4GB", "B": "cpus:3;mem:1GB"})


async def wait_for_counts(
    cluster: Cluster, wanted: dict[str, int], shares: dict[str, float]
) -> None:
    """Wait until most samples have these task counts and shares; tasks start and end meanwhile."""

    async def are_usual() -> bool:
        seen: Counter[bool] = Counter()
        for _ in range(50):
            running = {name: view.tasks for name, view in (await cluster.frameworks()).items()}
            seen[running == wanted] += 1
            await asyncio.sleep(0.01)
        return seen[True] >= 30

    await eventually(are_usual, 60, what=f"{wanted} run")

    async def are_shares() -> bool:
        return await cluster.shares() == shares

    await eventually(are_shares, 30, what=f"shares are {shares}")


async def test_a_late_framework_reaches_its_share(tmp_path: Path) -> None:
    """The first framework uses everything; as its tasks end, the second reaches its share."""
    has, units = PAPER
    async with real_cluster(tmp_path, has) as cluster:
        for order in ("AB", "BA"):
            async with AsyncExitStack() as stack:
                for name in order:
                    steady = Steady(name, cluster.master, units[name], seconds=0.8)
                    await stack.enter_async_context(at_work(steady))
                    await eventually(lambda: steady.launched > 0, 60, what=f"{name} runs tasks")  # noqa: B023
                await wait_for_counts(cluster, {"A": 3, "B": 2}, {"A": 0.667, "B": 0.667})
            await eventually(cluster.conserved, 60, "the next ones find all free")


async def test_a_slow_framework_and_a_quick_one_do_not_starve_each_other(tmp_path: Path) -> None:
    """Neither declares a demand, so each is offered all free resources of the one agent."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            real_cluster(tmp_path, "cpus:4;mem:4GB;disk:1GB", "cpus:4;mem:4GB;disk:1GB")
        )
        unit = "cpus:1;mem:512MB"
        slow = Steady("slow", cluster.master, unit, 0.3, think_s=0.5, declares=False)
        quick = Steady("quick", cluster.master, unit, 0.3, declares=False)
        await stack.enter_async_context(at_work(quick))
        await stack.enter_async_context(at_work(slow))

        async def both_work() -> bool:
            return quick.launched > 30 and slow.launched > 10

        await eventually(both_work, 60, what="both run their tasks")


CPUS = 12
UNIT = "cpus:1;mem:64MB"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    size = ("--agents", "1", "--cpus", str(CPUS), "--mem", "12GB", "--disk", "1GB")
    flags = (*size, "--policy", "drf", "--", "--offer-lease", "5")
    with running_local(tmp_path_factory.mktemp("quota"), *flags) as local:
        yield local


@pytest.fixture
async def operator(local: Local) -> AsyncIterator[OperatorServiceStub]:
    async with make_channel(Address.parse(local.master), local.security) as channel:
        yield OperatorServiceStub(channel)


async def croupier(local: Local, *words: str) -> str:
    """Run a command without blocking the test's frameworks; return its output."""
    done: subprocess.CompletedProcess[str] = await asyncio.to_thread(local.croupier, *words)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


async def used(operator: OperatorServiceStub) -> dict[str, int]:
    """Return the cpus that tasks of each role and its subroles use, as integers."""
    answer = await operator.ListRoles(pb.ListRolesRequest(), timeout=10)
    return {view.role: view.used.cpus_milli // 1000 for view in answer.roles}


async def wait_for_use(
    operator: OperatorServiceStub, wanted: dict[str, int], of_50: int = 30
) -> None:
    """Wait until tasks use these cpus in `of_50` of 50 looks; tasks start and end meanwhile."""

    async def is_used() -> bool:
        seen: Counter[bool] = Counter()
        for _ in range(50):
            now = await used(operator)
            seen[all(now.get(role, 0) == cpus for role, cpus in wanted.items())] += 1
            await asyncio.sleep(0.01)
        return seen[True] >= of_50

    await eventually(is_used, 60, what=f"{wanted} is used")


async def work(stack: AsyncExitStack, local: Local, *roles: str, seconds: float = 0.8) -> None:
    """Run a greedy framework in each of `roles`, named after its role."""
    for role in roles:
        steady = Steady(role.replace("/", "-"), local.master, UNIT, seconds, role=role)
        await stack.enter_async_context(at_work(steady))


async def test_weights_of_nested_roles(local: Local, operator: OperatorServiceStub) -> None:
    """ads has twice the weight of web; in ads, prod has three times that of test."""
    async with AsyncExitStack() as stack:
        await work(stack, local, "web", "ads/test", "ads/prod")
        await wait_for_use(operator, {"web": 6, "ads": 6, "ads/prod": 3, "ads/test": 3})
        would = await croupier(local, "weights", "set", "ads", "2", "--dry-run")
        assert "ads: weight 1 -> 2, entitled to 0.500 -> 0.667" in would
        assert "web: entitled to 0.500 -> 0.333" in would
        assert json.loads(await croupier(local, "weights", "get", "ads", "--json"))["weight"] == 1
        await croupier(local, "weights", "set", "ads", "2")
        await croupier(local, "weights", "set", "ads/prod", "3")
        await wait_for_use(operator, {"web": 4, "ads": 8, "ads/prod": 6, "ads/test": 2})
        told = (
            "entitled to 0.500",
            "role ads: weight 2, share 0.667, entitled to 0.667",
            "role ads/prod: weight 3, share 0.500, entitled to 0.500",
        )

        async def are_told() -> bool:
            output = await croupier(local, "why", "ads-prod")
            return all(text in output for text in told)

        # A task may have ended just now.
        await eventually(are_told, 60, what="why tells the usual shares")
        assert [line.split()[0] for line in (await croupier(local, "roles")).splitlines()] == [
            "ROLE", "ads", "ads/prod", "ads/test", "web",
        ]  # fmt: skip
        for role in ("ads", "ads/prod"):
            await croupier(local, "weights", "remove", role)

    def changes() -> list[dict[str, Any]]:
        lines = log_events((local.work_dir / "cluster" / "master.log").read_text())
        return [each for each in lines if each["event"] == "role_changed" and each["role"] == "ads"]

    # The master writes its log a moment later.
    await eventually(lambda: len(changes()) == 2)
    audit = changes()
    assert [(line["before"], line["after"]) for line in audit] == [
        ("weight 1", "weight 2"),
        ("weight 2", "weight 1"),
    ]
    assert all("127.0.0.1" in line["operator"] for line in audit)


async def test_a_limit_is_never_exceeded(local: Local, operator: OperatorServiceStub) -> None:
    """A limit and its removal take effect at once for the role and its subroles."""
    async with AsyncExitStack() as stack:
        await croupier(local, "quota", "set", "lab", "--limit", "cpus:5")
        await work(stack, local, "lab/one", "lab/two", seconds=0.5)
        await wait_for_use(operator, {"lab": 5})
        for _ in range(300):
            assert (await used(operator))["lab"] <= 5
            await asyncio.sleep(0.005)
        for name in ("lab-one", "lab-two"):
            output = await croupier(local, "why", name)
            assert "limited to cpus:5" in output
            assert "lab" in _reason(output, "limit")
            assert "croupier quota set lab --limit" in output
        refused = await asyncio.to_thread(
            local.croupier, "quota", "set", "lab", "--limit", "cpus:1"
        )
        assert refused.returncode == 1
        assert "which is more than the limit cpus:1" in refused.stderr
        await croupier(local, "quota", "set", "lab", "--limit", "cpus:9")
        await wait_for_use(operator, {"lab": 9}, of_50=1)
        await croupier(local, "quota", "remove", "lab")
        # On a loaded machine, tasks this short end faster than every cpu is dealt again.
        await wait_for_use(operator, {"lab": CPUS}, of_50=1)


def _reason(output: str, cause: str) -> str:
    """Return the line of `why` with this cause."""
    lines = [line.strip() for line in output.splitlines()]
    found = [line for line in lines if line.startswith(cause)]
    assert found, output
    return found[0]


PREEMPTED_CPUS = 8
LONG = 600.0
# Preemption would show by then: longer than the timeouts and the grace that the master has.
AGAIN_S = 4.5


@pytest.fixture
def preempting(tmp_path: Path) -> Iterator[Local]:
    size = ("--agents", "1", "--cpus", str(PREEMPTED_CPUS), "--mem", "8GB", "--disk", "1GB")
    # A command that looks during the grace may take over a second on a busy machine.
    hurry = (
        "--preemption", "--starvation-timeout", "1", "--guarantee-timeout", "0.5",
        "--preemption-grace", "2.5",
    )  # fmt: skip
    with running_local(tmp_path, *size, "--", *hurry) as running:
        yield running


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


async def test_a_starving_framework_gets_its_share_and_no_more(preempting: Local) -> None:
    """Tasks that never end fill the cluster; a later framework still gets half of it."""
    async with AsyncExitStack() as stack:
        early = Steady("early", preempting.master, UNIT, LONG)
        await stack.enter_async_context(at_work(early))

        async def is_full() -> bool:
            return await running(preempting) == {"early": PREEMPTED_CPUS}

        await eventually(is_full, 60, what="early has everything")
        late = Steady("late", preempting.master, UNIT, LONG)
        await stack.enter_async_context(at_work(late))

        async def is_asked() -> bool:
            return "room is being made" in await croupier(preempting, "why", "late")

        await eventually(is_asked, 60, what="why says that room is being made")

        async def is_even() -> bool:
            return await running(preempting) == {
                "early": PREEMPTED_CPUS // 2,
                "late": PREEMPTED_CPUS // 2,
            }

        await eventually(is_even, 60, what="both have half")
        ended = json.loads(await croupier(preempting, "tasks", "--json"))
        reasons = {task["reason"] for task in ended if task["state"] == "KILLED"}
        assert reasons == {"PREEMPTED"}, ended
        # No framework is below its share any more, so preemption stops.
        await asyncio.sleep(AGAIN_S)
        assert await is_even()


async def test_a_guarantee_is_taken_back_within_its_timeout(preempting: Local) -> None:
    """The master first asks the framework above its share, which kills its own tasks."""
    async with AsyncExitStack() as stack:
        batch = Polite("batch", preempting.master, UNIT, LONG, role="batch/nightly")
        await stack.enter_async_context(at_work(batch))

        async def is_full() -> bool:
            return await running(preempting) == {"batch": PREEMPTED_CPUS}

        await eventually(is_full, 60, what="batch has everything")
        await croupier(preempting, "quota", "set", "prod", "--guarantee", "cpus:6")
        await croupier(preempting, "weights", "set", "batch", "9")
        web = Steady("web", preempting.master, UNIT, LONG, role="prod/web")
        await stack.enter_async_context(at_work(web))

        async def is_met() -> bool:
            return await running(preempting) == {"batch": PREEMPTED_CPUS - 6, "web": 6}

        await eventually(is_met, 60, what="prod has what it was guaranteed")
        assert batch.asked
        assert "below a guarantee" in batch.asked[0].reason
        reasons = await croupier(preempting, "why", "batch")
        # Nothing is below its guarantee now: what is held is held by right.
        assert "in use, 1 agent" in reasons, reasons
