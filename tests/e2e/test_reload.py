"""SIGHUP makes real daemons read their configuration again."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.harness.cluster import log_events, real_cluster
from tests.harness.eventually import eventually

pytestmark = pytest.mark.e2e

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

        await eventually(is_taken, 20)
        assert events("host0", "config_reloaded")[0]["taken"] == ["--attributes"]
        assert events("host0", "restart_needed")[0]["settings"] == ["--undealt-ports"]
        await eventually(lambda: events("master", "config_reloaded"), 20)
        assert events("master", "config_reloaded")[0]["taken"] == ["--log-level"]
        write("r3", "info", "refuse", "colour = 1\n")
        hang_up()
        await eventually(lambda: events("master", "config_not_reloaded"), 20)
        assert "colour" in str(events("master", "config_not_reloaded")[0]["error"])
