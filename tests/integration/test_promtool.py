"""`promtool` accepts sound metrics, finds faults in others, and runs our alerts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.exposition import generate_latest

from tests.harness.promtool import check_alerts, check_metrics


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


ALERTS = Path(__file__).parents[2] / "deploy/alerts.yml"
OWN = 'croupier_certificate_expiry_time_seconds{certificate="own",instance="m1",job="c"}'
AUTHORITY = OWN.replace("own", "authority")
START = 'croupier_certificate_start_time_seconds{instance="m1",job="c"}'
FAILED = 'croupier_certificate_renewals_total{outcome="failed",instance="m1",job="c"}'


def test_alerts_fire_in_time(tmp_path: Path) -> None:
    """A certificate that is valid from 0 to 100 minutes, and an authority of 40 days."""
    names = ("ExpiresSoon", "Expired", "NotRenewed")
    firing = {70: (), 90: ("ExpiresSoon",), 101: ("ExpiresSoon", "Expired"), 130: names}

    def expected(name: str) -> dict[str, object]:
        labels = {"severity": "critical" if name == "Expired" else "warning", "instance": "m1"}
        more = {"NotRenewed": {"outcome": "failed"}, "Expired": {"certificate": "own"}}
        return {"exp_labels": {**labels, "job": "c", **more.get(name, {})}}

    cases = [
        {
            "eval_time": f"{minute}m",
            "alertname": f"CroupierCertificate{name}",
            "exp_alerts": [expected(name)] if name in fired else [],
        }
        for minute, fired in firing.items()
        for name in names
    ]
    series = {OWN: "6000x200", START: "0x200", AUTHORITY: "3456000x200", FAILED: "0x120 1x80"}
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    # JSON is YAML, too. Annotations are not compared: they are prose.
    rules = ALERTS.read_text().partition("\n")[2].splitlines()
    bare, is_prose = [], False
    for line in rules:
        is_prose = line.strip() == "annotations:" or (is_prose and line.startswith(" " * 10))
        bare += [] if is_prose else [line]
    (tmp_path / "alerts.yml").write_text("\n".join(bare) + "\n")
    test = {"interval": "1m", "input_series": inputs, "alert_rule_test": cases}
    path = tmp_path / "tests.yml"
    path.write_text(json.dumps({"rule_files": ["alerts.yml"], "tests": [test]}))
    check_alerts(ALERTS, path)
