"""Waits for alerts of a real Prometheus; their names lack the prefix Croupier."""

from __future__ import annotations

from tests.harness.eventually import eventually
from tests.harness.prometheus import Prometheus

DEADLINE_S = 60.0


async def fire(
    prometheus: Prometheus, cluster: str, *alerts: str, timeout_s: float = DEADLINE_S
) -> None:
    """Wait until all of `alerts` fire for the cluster; '' is the one without a label."""
    wanted = {f"Croupier{alert}" for alert in alerts}

    async def all_fire() -> bool:
        return wanted <= await prometheus.firing(cluster)

    await eventually(all_fire, timeout_s, f"{alerts} fire")


async def stop(
    prometheus: Prometheus, cluster: str, *alerts: str, timeout_s: float = DEADLINE_S
) -> None:
    """Wait until none of `alerts` fires for the cluster."""
    unwanted = {f"Croupier{alert}" for alert in alerts}

    async def all_stop() -> bool:
        return not unwanted & await prometheus.firing(cluster)

    await eventually(all_stop, timeout_s, f"{alerts} stop")
