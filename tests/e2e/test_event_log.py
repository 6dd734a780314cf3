"""The event log of a real master that is killed under load, and its replay."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.harness.cluster import Cluster, fetch, real_cluster
from tests.harness.command import croupier
from tests.harness.eventually import eventually
from tests.harness.steady import Steady, at_work

pytestmark = pytest.mark.e2e

AGENT = "cpus:4;mem:4GB;disk:1GB"


async def under_load(cluster: Cluster, seconds: float) -> None:
    """Run three frameworks with tasks of `seconds`, one without declared demand, and operators."""
    async with AsyncExitStack() as stack:
        frameworks = [
            Steady("a", cluster.master, "cpus:1;mem:64MB", seconds, role="ads"),
            Steady("b", cluster.master, "cpus:1;mem:64MB", seconds, role="web/front"),
            Steady("c", cluster.master, "cpus:0.5;mem:64MB", seconds, role="any", declares=False),
        ]
        for framework in frameworks[:2]:
            await stack.enter_async_context(at_work(framework))
        for framework in frameworks[:2]:

            async def is_at_work(framework: Steady = framework) -> bool:
                return framework.launched > 10

            await eventually(is_at_work, 20, what=f"{framework.name} runs tasks")
        async with at_work(frameworks[2]):
            for flags in (["weights", "set", "ads", "3"], ["why", "a"], ["roles"]):
                ended = await croupier(*flags, "--master", cluster.master)
                assert ended.code == 0, ended.err
            fetch(f"http://{cluster.http}/metrics")
            before = frameworks[0].launched
            await eventually(
                lambda: frameworks[0].launched > before + 15, 60, "the log is long enough"
            )
        # The log must end while they are running.
        cluster.kill("master", signal.SIGKILL)
        await cluster.start_master()


async def test_decisions_of_a_killed_master_are_replayed(tmp_path: Path) -> None:
    log = tmp_path / "events.log"
    async with real_cluster(tmp_path, AGENT, AGENT, flags=("--event-log", str(log))) as cluster:
        await under_load(cluster, 1.5)
    once, twice = await asyncio.gather(*(croupier("replay", str(log)) for _ in range(2)))
    assert once.code == 0, once.err
    assert once.out == twice.out
    assert "the same, byte for byte" in once.out
    verified = await croupier("replay", str(log), "--verify", PYTHONHASHSEED="7")
    assert verified.code == 0, verified.err

    report = json.loads((await croupier("replay", str(log), "--json")).out)
    roles = report["recorded"]["roles"]
    assert set(roles) == {"ads", "any", "web", "web/front"}
    assert roles["ads"]["tasks"] > 10
    assert roles["ads"]["share"] > roles["web"]["share"] > 0
    assert report["recorded"]["utilisation"]["cpus"] > 0.5
    assert oct(log.stat().st_mode & 0o777) == "0o600"
    assert b"sleep" not in log.read_bytes()


async def test_bad_flags_and_logs_are_one_clear_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for flags, code, why in (
        (["replay", str(log)], 1, "No such file"),
        (["replay", str(log), "--weights", "ads"], 2, "not ROLE=WEIGHT"),
        (["replay", str(log), "--quota", "ads"], 2, "not ROLE=guarantee"),
        (["replay", str(log), "--policy", "luck"], 2, "not a policy"),
        (["replay", str(log), "--verify", "--policy", "drf"], 2, "takes no changes"),
        (["replay", "/dev/null"], 1, "not a regular file"),
    ):
        ended = await croupier(*flags)
        assert (ended.code, ended.out) == (code, "")
        assert why in ended.err
        assert len(ended.err.splitlines()) == 1
    log.write_text('{"head"')
    ended = await croupier("replay", str(log))
    assert (ended.code, ended.err.splitlines()) == (
        1, [f"croupier: {log}, line 1: not a line of JSON"]
    )  # fmt: skip
