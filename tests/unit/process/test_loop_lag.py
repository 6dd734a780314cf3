"""The lag of the loop is measured, not that of its tasks."""

from __future__ import annotations

import asyncio
import time

from prometheus_client import CollectorRegistry

from croupier.process.process_metrics import LoopWatch
from tests.harness.eventually import eventually


def seen(registry: CollectorRegistry, above: float) -> float:
    """Return how many times the loop was later than `above` seconds."""
    name = "croupier_loop_lag_seconds"
    total = registry.get_sample_value(f"{name}_count") or 0.0
    return total - (registry.get_sample_value(f"{name}_bucket", {"le": str(above)}) or 0.0)


async def test_a_blocked_loop_is_measured() -> None:
    registry = CollectorRegistry()
    watch = LoopWatch(registry)
    watch.start()
    loop = asyncio.get_running_loop()
    loop.call_soon(time.sleep, 0.4)
    await eventually(lambda: seen(registry, 0.25) == 1)
    watch.stop()
    count = registry.get_sample_value("croupier_loop_lag_seconds_count")
    await asyncio.sleep(0.12)
    assert registry.get_sample_value("croupier_loop_lag_seconds_count") == count
