"""A real Prometheus: panels, rules and alerts have data, and each alert fires during its fault."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from croupier.agent import link
from croupier.master.app import MasterDaemon
from croupier.master.config import MasterConfig, StoreChoice
from croupier.master.core.events import AccountingDue
from croupier.master.etcd import upkeep
from croupier.model.budget import parse_budget
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings
from croupier.net.client_session import SessionTimes
from croupier.net.credentials import create_token_file, make_token
from croupier.net.transport import make_channel
from croupier.sdk import Resources, Task
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.harness.agents import running_agent
from tests.harness.eventually import eventually
from tests.harness.masters import ANY_PORT
from tests.harness.prometheus import Haste, Prometheus, running_prometheus, scrape
from tests.harness.promql import panels, recorded
from tests.integration.prometheus.daemon_faults import AgentFaults, MasterFaults
from tests.integration.prometheus.etcd_faults import EtcdFaults
from tests.integration.prometheus.security_faults import SecurityFaults
from tests.integration.prometheus.workload import UNIT, Workload, fire, running, stop

DATA_S = 90.0
# Alerts that fire without a fault where the processor or the disk is busy.
OF_SLOW_MACHINES = {"CroupierLoopLag", "CroupierStoreSlow"}
# What Grafana puts in.
VARIABLES = {"$cluster": ".*", "$__rate_interval": "5m"}


async def work(framework: Workload) -> None:
    """Have tasks end well and badly, fill the cluster, and leave one task queued."""
    tasks = {
        "well": (["true"], UNIT),
        "badly": (["false"], UNIT),
        "big": (["true"], Resources.parse("cpus:100")),
    }
    await framework.submit(
        Task(argv, resources=r, task_id=name) for name, (argv, r) in tasks.items()
    )
    wanted = {"well": "FINISHED", "badly": "FAILED"}
    await eventually(lambda: wanted.items() <= framework.states.items(), 60)
    deaf = ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"]
    await framework.submit(
        Task(deaf, resources=UNIT, task_id=f"long-{at}", grace_s=3600) for at in range(8)
    )
    await eventually(lambda: list(framework.states.values()).count("RUNNING") == 8, 60)


async def without_data(prometheus: Prometheus, queries: Iterable[str]) -> set[str]:
    found = list(queries)
    values = await asyncio.gather(*(prometheus.values(query) for query in found))
    return {query for query, values in zip(found, values, strict=True) if not values}


def on_the_page(query: str) -> str:
    """Return a panel's query as Grafana sends it."""
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    return query


async def all_have_data(prometheus: Prometheus) -> None:
    queries = {on_the_page(expr) for _, _, expr in panels()} | recorded().keys()
    assert len(queries) > 60
    missing: set[str] = queries

    async def none_is_missing() -> bool:
        nonlocal missing
        missing = await without_data(prometheus, missing)
        return not missing

    try:
        await eventually(none_is_missing, DATA_S)
    except AssertionError:
        raise AssertionError("no data: " + "\n".join(sorted(missing))) from None


async def all_is_well(prometheus: Prometheus) -> None:
    """Wait until all targets are up and no alert fires: a scrape that takes 0.3 s has failed."""

    async def is_well() -> bool:
        return not await prometheus.unhealthy() and await prometheus.firing() <= OF_SLOW_MACHINES

    try:
        await eventually(is_well, DATA_S)
    except AssertionError:
        problems = f"{await prometheus.unhealthy()}, {await prometheus.firing()}"
        raise AssertionError(f"unhealthy or firing: {problems}") from None


@pytest.mark.timeout(360)
async def test_panels_rules_and_alerts(tmp_path: Path) -> None:
    token = make_token()
    create_token_file(tmp_path / "token", token)
    config = MasterConfig(
        listen=ANY_PORT,
        http=ANY_PORT,
        store=StoreChoice(tmp_path / "master.db"),
        heartbeat=1.0,
        agent_timeout=4.0,
        metrics_token_file=tmp_path / "token",
    )
    async with AsyncExitStack() as stack:
        master = MasterDaemon(config)
        stack.push_async_callback(master.stop)
        await master.start()
        lost = AsyncExitStack()
        stack.push_async_exit(lost)
        agents = [
            await where.enter_async_context(
                running_agent(
                    tmp_path / name,
                    master.address,
                    hostname=name,
                    metrics_token_file=tmp_path / "token",
                )
            )
            for where, name in ((stack, "a1"), (lost, "a2"))
        ]
        settings = RoleSettings(2000, guarantee={"cpus": 1000}, limit={"cpus": 99_000})
        master.driver.state.allocator.set_role(Role("ads"), settings)
        framework = await stack.enter_async_context(running(Workload(master.address, "ads")))
        bearing: dict[str, Any] = {"authorization": {"credentials": token.text}}
        jobs = [
            scrape("croupier-master", master.http_address, **bearing),
            scrape("croupier-agent", *(agent.http_address for agent in agents), **bearing),
        ]
        prometheus = await stack.enter_async_context(running_prometheus(tmp_path, jobs))
        await eventually(lambda: prometheus.has_scraped(3), 90)
        async with running(Workload(master.address, "web", UNIT)) as picky:
            await asyncio.wait_for(picky.declined.wait(), 30)
            await picky.stop(teardown=True)
        await work(framework)
        await all_have_data(prometheus)
        assert await prometheus.rule_errors() == {}
        await all_is_well(prometheus)

        starved = await stack.enter_async_context(running(Workload(master.address, "web", UNIT)))
        async with make_channel(master.address) as channel:
            operator = OperatorServiceStub(channel)
            await operator.DrainAgent(pb.DrainAgentRequest(agent="a1", grace_ms=3_600_000))
            await lost.aclose()
            await fire(
                prometheus, "", "FrameworkStarved", "DrainStuck", "AgentsUnreachable", "TargetDown"
            )
            await operator.ReactivateAgent(pb.ReactivateAgentRequest(agent="a1"))
            await starved.stop(teardown=True)
        await stop(prometheus, "", "FrameworkStarved", "DrainStuck", "NoLeader")
        allocator, inbox = master.driver.state.allocator, master.driver.inbox
        spent = replace(settings, budget=parse_budget("cpus:0.001/month/warn"))
        allocator.set_role(Role("ads"), spent)
        await inbox.put(AccountingDue(round(time.time() * 1000)))
        await fire(prometheus, "", "BudgetUsedUp")
        allocator.set_role(Role("ads"), settings)
        await inbox.put(AccountingDue(round(time.time() * 1000)))
        await stop(prometheus, "", "BudgetUsedUp")
        await master.stop()
        await fire(prometheus, "", "NoLeader")


HASTE = Haste(
    ranges="6s",
    range_of={
        "CroupierLeaderChangesOften": "12s",
        "CroupierNoLeader": "1h",
        "CroupierCertificateExpired": "1h",
    },
    limits={
        "CroupierTasksStuckQueued": ("> 1800", "> 1"),
        "CroupierEndsNotAcknowledged": ("> 1000", "> 4"),
        "CroupierEtcdSilent": ("> 15", "> 2"),
    },
)
# A rejected agent tries again after seconds instead of a minute.
TIMES = SessionTimes(rejected_first_s=0.2, rejected_cap_s=0.5)


@pytest.mark.timeout(600)
async def test_each_alert_fires_during_its_fault_and_stops_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "TIMES", TIMES)
    monkeypatch.setattr(upkeep, "PROBE_S", 0.5)
    async with AsyncExitStack() as stack:
        parts = [
            kind(stack, tmp_path)
            for kind in (AgentFaults, EtcdFaults, MasterFaults, SecurityFaults)
        ]
        started = await asyncio.gather(*(part.start() for part in parts))
        jobs = [job for each in started for job in each]
        targets = sum(len(job["static_configs"][0]["targets"]) for job in jobs)
        # Daemons render their metrics once a second.
        running = running_prometheus(tmp_path, jobs, HASTE, interval="1s")
        prometheus = await stack.enter_async_context(running)
        await eventually(lambda: prometheus.has_scraped(targets), 90)
        async with asyncio.TaskGroup() as group:
            for part in parts:
                part.prometheus = prometheus
                group.create_task(part.run())
        assert await prometheus.rule_errors() == {}
