"""Weights, guarantees and limits of nested roles on a cluster of real processes.

Operators use the `croupier` command. Each rule shows in the running tasks and in
the output of `why`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from croupier.net.address import Address
from croupier.net.transport import make_channel
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.harness.cluster import log_events
from tests.harness.eventually import eventually
from tests.harness.real_local import Local, running_local
from tests.harness.steady import Steady, at_work

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

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

    await eventually(is_used, 30, what=f"{wanted} is used")


async def work(stack: AsyncExitStack, local: Local, *roles: str, seconds: float = 0.5) -> None:
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
        output = await croupier(local, "why", "ads-prod")
        assert "entitled to 0.500" in output
        assert "role ads: weight 2, share 0.667, entitled to 0.667" in output
        assert "role ads/prod: weight 3, share 0.500, entitled to 0.500" in output
        assert [line.split()[0] for line in (await croupier(local, "roles")).splitlines()] == [
            "ROLE", "ads", "ads/prod", "ads/test", "web",
        ]  # fmt: skip
        for role in ("ads", "ads/prod"):
            await croupier(local, "weights", "remove", role)
    lines = log_events((local.work_dir / "cluster" / "master.log").read_text())
    audit = [line for line in lines if line["event"] == "role_changed" and line["role"] == "ads"]
    assert [(line["before"], line["after"]) for line in audit] == [
        ("weight 1", "weight 2"),
        ("weight 2", "weight 1"),
    ]
    assert all("127.0.0.1" in line["operator"] for line in audit)


async def test_a_limit_is_never_exceeded(local: Local, operator: OperatorServiceStub) -> None:
    """A limit and its removal take effect at once for the role and its subroles."""
    async with AsyncExitStack() as stack:
        await croupier(local, "quota", "set", "lab", "--limit", "cpus:5")
        await work(stack, local, "lab/one", "lab/two", seconds=0.2)
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
