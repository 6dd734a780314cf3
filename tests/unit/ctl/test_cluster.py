"""Failures among the daemons of a local cluster."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from croupier.ctl.local.children import Child
from croupier.ctl.local.cluster import Cluster
from croupier.ctl.local.plan import Daemon, Plan
from croupier.net.address import Address

MASTER = Daemon("master", ("true",))
PLAN = Plan(Address("127.0.0.1", 1), Address("127.0.0.1", 2), MASTER, (), ())


class FakeChildren:
    """Children that signals kill, as before they have installed handlers."""

    def __init__(self) -> None:
        self.started: list[Child] = []

    def start(self, daemon: Daemon, log: Path, _environment: Mapping[str, str]) -> Child:
        self.started.append(Child(daemon.name, 1, log))
        return self.started[-1]

    def signal(self, child: Child, number: signal.Signals) -> None:
        if not child.ended.is_set():
            child.status = -number
            child.ended.set()


@pytest.mark.parametrize(
    ("status", "fails"), [(None, False), (-signal.SIGTERM, True), (1, True), (0, False)]
)
async def test_a_daemon_killed_by_sigterm_has_not_failed(
    tmp_path: Path, status: int | None, fails: bool
) -> None:
    children: Any = FakeChildren()
    cluster = Cluster(PLAN, tmp_path, children)
    cluster._started.append(cluster._launch(MASTER))
    [child] = children.started
    if status is not None:
        child.status = status
        child.ended.set()
    await cluster.take_down(asyncio.sleep(60))
    assert cluster.has_failed == fails
