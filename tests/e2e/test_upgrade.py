"""Upgrades in place of a cluster of an earlier build, and SIGHUP for a new configuration."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.chaos.real.checker import check_tasks, unsettled
from tests.harness.agent_process import UNISOLATED
from tests.harness.cluster import log_events, processes_with, real_cluster
from tests.harness.eventually import eventually
from tests.upgrade.build import Build, extract_old_build
from tests.upgrade.cluster import AGENT, HELD, MASTER, WAIT_S, Upgrade, old_cluster
from tests.upgrade.keeper import LATE, work_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


@dataclass(frozen=True, slots=True)
class Order:
    """One way to upgrade.

    Attributes:
        steps: the daemons that are stopped and started together, one step after the other.
        stop: the signal that ends a daemon.
        framework: when the framework moves to the new SDK: `never`, `first` or `last`.
        flags: of the new agent.
    """

    steps: tuple[tuple[str, ...], ...]
    stop: signal.Signals
    framework: str
    flags: tuple[str, ...] = UNISOLATED


ORDERS: Final = {
    "master_first": Order(((MASTER,), (AGENT,)), signal.SIGTERM, "never"),
    "agent_first": Order(((AGENT,), (MASTER,)), signal.SIGKILL, "first"),
    "all_killed": Order(((MASTER, AGENT),), signal.SIGKILL, "last", ()),
}


@pytest.fixture(scope="module")
def old_build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    return extract_old_build(tmp_path_factory.mktemp("old"))


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
async def test_a_cluster_is_upgraded_in_place(
    tmp_path: Path, old_build: Build, order: Order
) -> None:
    """No task is lost or run twice, and each true exit code is reported once."""
    async with old_cluster(tmp_path, old_build) as upgrade:
        if order.framework == "first":
            upgrade.stop_keeper()
            upgrade.start_keeper(is_old=False)
        upgrade.environment = None
        upgrade.agent_flags = order.flags
        for step in order.steps:
            for name in step:
                await upgrade.stop_daemon(name, order.stop)
            await upgrade.end_tasks(2)
            for name in step:
                await upgrade.start_daemon(name)
            await upgrade.end_tasks(2)
            await upgrade.check_known()
        if order.framework == "last":
            upgrade.stop_keeper()
            upgrade.start_keeper(is_old=False)
        await end_all(upgrade)


async def test_a_cluster_of_a_hundred_running_and_a_thousand_ended_tasks_is_upgraded(
    tmp_path: Path, old_build: Build
) -> None:
    async with old_cluster(tmp_path, old_build, short=1000, tasks=1100 + HELD) as upgrade:
        assert len(upgrade.ends()) == 1000
        await upgrade.check_known()
        for name in (AGENT, MASTER):
            await upgrade.stop_daemon(name, signal.SIGTERM)
        upgrade.environment = None
        upgrade.agent_flags = UNISOLATED
        for name in (MASTER, AGENT):
            await upgrade.start_daemon(name)
        await upgrade.check_known()
        await end_all(upgrade)


async def end_all(upgrade: Upgrade) -> None:
    """Have all tasks exit, and check that every end is true and was reported once."""
    upgrade.held.unlink()
    upgrade.more.touch()
    await upgrade.end_tasks(upgrade.tasks)
    total = upgrade.tasks + LATE
    await eventually(lambda: len(upgrade.ends()) == total, WAIT_S, "late tasks end")
    await eventually(
        lambda: not unsettled(upgrade.entries), WAIT_S, "all terminal updates are acknowledged"
    )

    assert check_tasks(work_of, {"keeper": upgrade.entries}, upgrade.ran) == []
    assert upgrade.ends() == upgrade.codes()
    await eventually(upgrade.conserved, WAIT_S, "nothing is used")
    await eventually(lambda: not processes_with("sleep\x0086413"))


HAS = "cpus:2;mem:2GB;disk:1GB"


async def test_daemons_reload_their_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "croupier.toml"

    def write(rack: str, level: str, ports: str, more: str = "") -> None:
        config.write_text(
            f'[croupier-agent]\nattributes = "rack:{rack}"\nundealt_ports = "{ports}"\n'
            f'[croupier-master]\nlog_level = "{level}"\n{more}'
        )

    write("r1", "info", "allow")
    monkeypatch.setenv("CROUPIER_CONFIG", str(config))
    async with real_cluster(tmp_path, HAS) as cluster:

        def events(name: str, event: str) -> list[dict[str, object]]:
            return [each for each in log_events(cluster.log(name)) if each["event"] == event]

        async def rack() -> str:
            (view,) = await cluster.agents()
            (attribute,) = view.agent.attributes
            return attribute.text

        def hang_up() -> None:
            for process in cluster.processes.values():
                process.send_signal(signal.SIGHUP)

        assert await rack() == "r1"
        write("r2", "debug", "refuse")
        hang_up()

        async def is_taken() -> bool:
            return await rack() == "r2" and bool(events("host0", "restart_needed"))

        await eventually(is_taken, 60)
        assert events("host0", "config_reloaded")[0]["taken"] == ["--attributes"]
        assert events("host0", "restart_needed")[0]["settings"] == ["--undealt-ports"]
        await eventually(lambda: events("master", "config_reloaded"), 60)
        assert events("master", "config_reloaded")[0]["taken"] == ["--log-level"]
        write("r3", "info", "refuse", "colour = 1\n")
        hang_up()
        await eventually(lambda: events("master", "config_not_reloaded"), 60)
        assert "colour" in str(events("master", "config_not_reloaded")[0]["error"])
