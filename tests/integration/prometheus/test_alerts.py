"""Each alert fires for the series of its fault, and none in a healthy cluster.

The tests run in `promtool`, which finds faults in metrics too. One row is one fault: the series,
and the labels of the alert.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.exposition import generate_latest

from tests.harness.promql import RULES, rules
from tests.harness.promtool import check_config, check_metrics, check_rules, run_rule_tests

DAY = 86400
# Each runs from 0 for three hours, with one value each minute.
LENGTH = 180
HEALTHY = {
    'up{job="croupier"}': "1x180",
    'croupier_master_leader{instance="m1"}': "1x180",
    'croupier_master_leader{instance="m2"}': "0x180",
    'croupier_master_knows_leader{instance="m1"}': "1x180",
    'croupier_master_knows_leader{instance="m2"}': "1x180",
    'croupier_master_epoch{instance="m1"}': "4x60 5x120",
    'croupier_master_term_ends_total{why="failed_over"}': "0x60 1x120",
    "croupier_agents_missing": "3x5 0x175",
    'croupier_agents{state="connected"}': "10x180",
    'croupier_agents{state="unreachable"}': "0x60 1x3 0x117",
    'croupier_agents_withheld{why="unhealthy"}': "0x180",
    'croupier_agent_problem{part="disk"}': "0x180",
    'croupier_agent_problem{part="launch"}': "0x180",
    "croupier_agent_disk_used_ratio": "0.5+0.002x180",
    "croupier_agent_registered": "1x180",
    "croupier_agent_rejected": "0x180",
    'croupier_agent_container_errors_total{step="exec"}': "0+0.1x180",
    'croupier_registry_write_seconds_bucket{le="0.1"}': "0+600x180",
    'croupier_registry_write_seconds_bucket{le="+Inf"}': "0+600x180",
    "croupier_etcd_members_failing": "0x180",
    "croupier_etcd_silent_seconds": "1x180",
    "croupier_event_log_dropped_total": "0x180",
    'croupier_audit_lines_lost_total{why="failed"}': "0x180",
    'croupier_loop_lag_seconds_bucket{instance="m1",le="0.1"}': "0+1200x180",
    'croupier_loop_lag_seconds_bucket{instance="m1",le="+Inf"}': "0+1200x180",
    "croupier_tasks_queued_oldest_seconds": "0+9x180",
    'croupier_framework_pending{framework="F1",name="web"}': "5x180",
    'croupier_framework_dominant_share{framework="F1",name="web"}': "0.3x180",
    'croupier_framework_entitlement{framework="F1",name="web"}': "0.4x180",
    'croupier_role_budget_used{role="ads"}': "0+0.005x180",
    "croupier_drain_tasks_left": "180-1x180",
    "croupier_tasks_unacknowledged": "20x180",
    'croupier_rate_limited_total{outcome="refused"}': "0+6x180",
    'croupier_authentication_failures_total{reason="expired"}': "0+6x180",
    "croupier_process_open_files": "100x180",
    "croupier_process_open_files_limit": "1000x180",
    'croupier_certificate_expiry_time_seconds{certificate="own"}': f"{DAY}x180",
    'croupier_certificate_expiry_time_seconds{certificate="authority"}': f"{400 * DAY}x180",
    "croupier_certificate_start_time_seconds": "0x180",
    "croupier_etcd_certificate_expiry_time_seconds": f"{30 * DAY}x180",
    'croupier_certificate_refused{certificate="own"}': "0x180",
}


@dataclass(frozen=True)
class Fault:
    """What is different from a healthy cluster.

    Attributes:
        labels: of the alert, besides its severity.
        series: replace those of the healthy cluster; an empty text takes one away.
        minute: at which the alert is firing.
        before: at which it is not yet firing.
    """

    alert: str
    labels: dict[str, str]
    series: dict[str, str]
    minute: int = 60
    before: int | None = None


AGENT = 'croupier_agent_problem{part="%s"}'
SOON = "croupier_certificate_expiry_time_seconds"
FAULTS = (
    Fault("NoLeader", {}, {'croupier_master_leader{instance="m1"}': "0x180"}, 2, 0),
    Fault(
        "NoLeader",
        {},
        {f'croupier_master_leader{{instance="{name}"}}': "" for name in ("m1", "m2")},
        2,
    ),
    Fault(
        "NoLeader",
        {"cluster": "b"},
        {'croupier_master_leader{cluster="b",instance="m3"}': "1x30 _x150"},
        40,
        30,
    ),
    Fault("SeveralLeaders", {}, {'croupier_master_leader{instance="m2"}': "1x180"}, 2, 0),
    Fault(
        "FollowerWithoutLeader",
        {"instance": "m2"},
        {'croupier_master_knows_leader{instance="m2"}': "0x180"},
        3,
        1,
    ),
    Fault(
        "LeaderChangesOften",
        {},
        {'croupier_master_epoch{instance="m1"}': "4x20 5x5 6x5 7x150"},
        35,
        28,
    ),
    Fault("TargetDown", {"job": "croupier"}, {'up{job="croupier"}': "0x180"}, 4, 2),
    Fault("AgentsMissing", {}, {"croupier_agents_missing": "3x180"}, 6, 4),
    Fault(
        "AgentsUnreachable",
        {"state": "unreachable"},
        {'croupier_agents{state="unreachable"}': "1x180"},
        6,
        4,
    ),
    Fault(
        "ManyAgentsLost",
        {},
        {
            'croupier_agents{state="disconnected"}': "4x180",
            'croupier_agents{state="gone"}': "90x180",
        },
        3,
        1,
    ),
    Fault(
        "AgentsUnhealthy",
        {"why": "unhealthy"},
        {'croupier_agents_withheld{why="unhealthy"}': "2x180"},
        6,
        4,
    ),
    Fault("AgentProblem", {"part": "launch"}, {AGENT % "launch": "1x180"}, 6, 4),
    Fault("AgentDiskFull", {"part": "disk"}, {AGENT % "disk": "1x180"}, 2, 0),
    Fault("AgentDiskFilling", {}, {"croupier_agent_disk_used_ratio": "0.95x180"}, 16, 14),
    Fault("AgentNotRegistered", {}, {"croupier_agent_registered": "0x180"}, 6, 4),
    Fault("AgentRejected", {}, {"croupier_agent_rejected": "1x180"}, 3, 1),
    Fault(
        "LaunchesFail",
        {"step": "exec"},
        {'croupier_agent_container_errors_total{step="exec"}': "0+1x180"},
        20,
        2,
    ),
    Fault(
        "StoreSlow",
        {},
        {
            'croupier_registry_write_seconds_bucket{le="0.1"}': "0+300x180",
            'croupier_registry_write_seconds_bucket{le="1"}': "0+600x180",
        },
        20,
        5,
    ),
    Fault(
        "StoreFailing",
        {"why": "store_unavailable"},
        {'croupier_master_term_ends_total{why="store_unavailable"}': "0x30 1x150"},
        32,
        29,
    ),
    Fault("EtcdMemberFailing", {}, {"croupier_etcd_members_failing": "1x180"}, 6, 4),
    Fault("EtcdSilent", {}, {"croupier_etcd_silent_seconds": "0+6x180"}, 4, 2),
    Fault("EventLogFailing", {}, {"croupier_event_log_dropped_total": "0x30 9x150"}, 32, 29),
    Fault(
        "AuditFailing",
        {"why": "failed"},
        {'croupier_audit_lines_lost_total{why="failed"}': "0x30 1x150"},
        32,
        29,
    ),
    Fault(
        "LoopLag",
        {"instance": "m1"},
        {
            'croupier_loop_lag_seconds_bucket{instance="m1",le="0.1"}': "0+600x180",
            'croupier_loop_lag_seconds_bucket{instance="m1",le="1"}': "0+1200x180",
        },
        20,
        5,
    ),
    Fault("TasksStuckQueued", {}, {"croupier_tasks_queued_oldest_seconds": "0+60x180"}, 36, 31),
    Fault(
        "FrameworkStarved",
        {"framework": "F1", "name": "web"},
        {'croupier_framework_dominant_share{framework="F1",name="web"}': "0.1x180"},
        16,
        14,
    ),
    Fault(
        "BudgetUsedUp",
        {"role": "ads"},
        {'croupier_role_budget_used{role="ads"}': "0.5x30 1x150"},
        31,
        29,
    ),
    Fault("DrainStuck", {}, {"croupier_drain_tasks_left": "5x180"}, 40, 25),
    Fault("EndsNotAcknowledged", {}, {"croupier_tasks_unacknowledged": "5000x180"}, 31, 29),
    Fault(
        "RateLimited",
        {"outcome": "refused"},
        {'croupier_rate_limited_total{outcome="refused"}': "0+600x180"},
        15,
        5,
    ),
    Fault(
        "AuthenticationFailures",
        {"reason": "expired"},
        {'croupier_authentication_failures_total{reason="expired"}': "0+600x180"},
        15,
        5,
    ),
    Fault("OpenFiles", {}, {"croupier_process_open_files": "900x180"}, 6, 4),
    Fault("CertificateExpiresSoon", {}, {f'{SOON}{{certificate="own"}}': "6000x180"}, 90, 70),
    Fault(
        "CertificateExpired",
        {"certificate": "own"},
        {f'{SOON}{{certificate="own"}}': "6000x180"},
        101,
        99,
    ),
    Fault(
        "CertificateExpired",
        {"certificate": "own"},
        {f'{SOON}{{certificate="own"}}': "6000x90 _x90"},
        120,
        99,
    ),
    Fault(
        "AuthorityExpiresSoon",
        {"certificate": "authority"},
        {f'{SOON}{{certificate="authority"}}': f"{29 * DAY}x180"},
        6,
        4,
    ),
    Fault(
        "EtcdCertificateExpiresSoon",
        {},
        {"croupier_etcd_certificate_expiry_time_seconds": f"{6 * DAY}x180"},
        6,
        4,
    ),
    Fault(
        "CertificateNotRenewed",
        {"certificate": "own"},
        {'croupier_certificate_refused{certificate="own"}': "0x30 1x150"},
        34,
        31,
    ),
)
SEVERITIES = {rule["alert"]: rule["labels"]["severity"] for rule in rules("alerts.yml")}


def a_test(series: Mapping[str, str], checks: list[dict[str, Any]]) -> dict[str, Any]:
    inputs = [{"series": name, "values": values} for name, values in series.items() if values]
    return {"interval": "1m", "input_series": inputs, "alert_rule_test": checks}


def check_of(alert: str, minute: int, *labels: Mapping[str, str]) -> dict[str, Any]:
    expected = [{"exp_labels": {"severity": SEVERITIES[alert], **each}} for each in labels]
    return {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": expected}


def cases_of(fault: Fault) -> dict[str, Any]:
    alert = f"Croupier{fault.alert}"
    checks = [check_of(alert, fault.minute, fault.labels)]
    if fault.before is not None:
        checks.append(check_of(alert, fault.before))
    return a_test(HEALTHY | fault.series, checks)


def without_annotations(name: str) -> dict[str, Any]:
    """Return a file of rules without prose, which promtool would compare."""
    content: dict[str, Any] = yaml.safe_load((RULES / name).read_text())
    for group in content["groups"]:
        # Once a minute is enough, and takes a quarter of the time.
        group.pop("interval", None)
        for rule in group["rules"]:
            rule.pop("annotations", None)
    return content


def test_the_files_are_sound() -> None:
    check_rules(*sorted(RULES.glob("*.yml")))


@pytest.mark.parametrize("page", ["monitoring.md", "security.md"])
def test_the_scrape_configurations_of_the_docs_are_sound(page: str, tmp_path: Path) -> None:
    text = (RULES.parents[1] / "docs" / page).read_text()
    found = [
        each for each in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "scrape_" in each
    ]
    assert found
    for content in found:
        (tmp_path / "prometheus.yml").write_text(content)
        check_config(tmp_path / "prometheus.yml")


def test_every_alert_has_a_fault() -> None:
    assert {f"Croupier{fault.alert}" for fault in FAULTS} == set(SEVERITIES)


def test_each_alert_fires_for_its_fault_and_none_without(tmp_path: Path) -> None:
    for name in ("alerts.yml", "recording.yml"):
        (tmp_path / name).write_text(yaml.safe_dump(without_annotations(name)))
    quiet = [check_of(alert, minute) for alert in SEVERITIES for minute in (20, 62)]
    document = {
        "rule_files": ["recording.yml", "alerts.yml"],
        "evaluation_interval": "1m",
        "tests": [a_test(HEALTHY, quiet), *map(cases_of, FAULTS)],
    }
    path = tmp_path / "tests.yml"
    path.write_text(json.dumps(document))
    run_rule_tests(path)


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
