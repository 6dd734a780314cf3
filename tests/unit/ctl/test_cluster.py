"""Failures among the daemons of a local cluster."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from croupier.ctl.local import questions
from croupier.ctl.local.children import Child
from croupier.ctl.local.cluster import AT_ONCE, Cluster
from croupier.ctl.local.plan import Daemon, LocalPlan
from croupier.model.errors import Unavailable
from croupier.net.address import Address

MASTER = Daemon("master", ("true",))
PLAN = LocalPlan(Address("127.0.0.1", 1), Address("127.0.0.1", 2), MASTER, (), ())


class FakeChildren:
    """Children that signals kill, as before they have installed handlers."""

    def __init__(self) -> None:
        self.started: list[Child] = []

    def start(
        self, daemon: Daemon, log: Path, _environment: Mapping[str, str], _stdin: int | None
    ) -> Child:
        self.started.append(Child(daemon.name, 1, log))
        return self.started[-1]

    def signal(self, child: Child, number: signal.Signals) -> None:
        if not child.ended.is_set():
            child.status = -number
            child.ended.set()


AGENTS = tuple(Daemon(f"agent-{number}", ("true",)) for number in range(1, 31))
MANY = LocalPlan(Address("127.0.0.1", 1), Address("127.0.0.1", 2), MASTER, AGENTS, ())


class StartingCluster(Cluster):
    """A cluster where `most` agents register, one at each look."""

    def __init__(self, work_dir: Path, most: int, wait_s: float | None = None) -> None:
        fakes: Any = FakeChildren()
        super().__init__(MANY, work_dir, fakes, wait_s=wait_s)
        self.fakes: FakeChildren = fakes
        self._patience_s, self.most, self.registered = 0.6, most, 0
        self.starting: list[int] = []

    async def _is_listening(self) -> bool:
        return True

    async def look(self, _target: object) -> dict[str, str]:
        launched = len(self.fakes.started) - 1
        self.starting.append(launched - self.registered)
        self.registered = min(self.registered + 1, self.most, launched)
        return {agent.name: "process" for agent in AGENTS[: self.registered]}


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Callable[[StartingCluster], None]:
    # A look each 30 ms, far less than the patience.
    monkeypatch.setattr("croupier.ctl.local.cluster._POLL_S", 0.003)
    return lambda cluster: monkeypatch.setattr(questions, "connected_agents", cluster.look)


async def test_a_bounded_number_of_agents_start_at_once_while_there_is_progress(
    tmp_path: Path, looks: Callable[[StartingCluster], None]
) -> None:
    cluster = StartingCluster(tmp_path, 30)
    looks(cluster)
    # In all it takes longer than the patience with one agent.
    await cluster.bring_up()
    assert [child.name for child in cluster.fakes.started[1:]] == [each.name for each in AGENTS]
    assert max(cluster.starting) <= AT_ONCE


async def test_a_cluster_is_used_with_the_agents_that_came(
    tmp_path: Path, looks: Callable[[StartingCluster], None], capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = StartingCluster(tmp_path, 5)
    looks(cluster)
    await cluster.bring_up()
    assert "25 of 30 agents are not registered" in capsys.readouterr().err
    assert len(cluster.fakes.started) == 31


@pytest.mark.parametrize(("most", "wait_s"), [(0, None), (29, 0.2)])
async def test_a_cluster_without_agents_or_in_time_is_given_up(
    tmp_path: Path, looks: Callable[[StartingCluster], None], most: int, wait_s: float | None
) -> None:
    cluster = StartingCluster(tmp_path, most, wait_s)
    looks(cluster)
    with pytest.raises(Unavailable, match=r"not ready after .* agents are not registered"):
        await cluster.bring_up()


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
