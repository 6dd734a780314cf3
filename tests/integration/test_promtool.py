"""`promtool` accepts sound metrics and finds faults in others."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.exposition import generate_latest

from tests.harness.promtool import check_metrics


def test_sound_metrics_pass() -> None:
    registry = CollectorRegistry()
    Counter("croupier_deals", "Deals made.", registry=registry).inc()
    check_metrics(generate_latest(registry).decode())


@pytest.mark.parametrize(
    "text", ["not a metric line at all {\n", "# TYPE deals counter\ndeals 1\n"]
)
def test_faults_are_found(text: str) -> None:
    with pytest.raises(AssertionError, match="promtool"):
        check_metrics(text)
