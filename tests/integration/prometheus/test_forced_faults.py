"""Each alert fires during a real fault of real daemons, and stops after it.

One Prometheus scrapes all of them; the label `cluster` tells them apart. The faults of one cluster
are forced beside those of the others.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from croupier.agent import link
from croupier.master.etcd import upkeep
from croupier.net.client_session import SessionTimes
from tests.harness.eventually import eventually
from tests.harness.prometheus import Haste, running_prometheus
from tests.integration.prometheus.agent_faults import AgentFaults
from tests.integration.prometheus.etcd_faults import EtcdFaults
from tests.integration.prometheus.master_faults import MasterFaults
from tests.integration.prometheus.security_faults import SecurityFaults

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


@pytest.mark.timeout(240)
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
        await eventually(lambda: prometheus.has_scraped(targets), 30)
        async with asyncio.TaskGroup() as group:
            for part in parts:
                part.prometheus = prometheus
                group.create_task(part.run())
        assert await prometheus.rule_errors() == {}
