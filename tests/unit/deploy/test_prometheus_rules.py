"""Rules use metrics and labels that exist, and every alert has a page in the runbook."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import promql

ALERTS = promql.rules("alerts.yml")
RUNBOOK = (promql.REPO / "docs/runbook.md").read_text()
EXPRESSIONS = {
    **{rule["record"]: rule["expr"] for rule in promql.rules("recording.yml")},
    **{rule["alert"]: rule["expr"] for rule in ALERTS},
}


def faults(expr: str) -> list[str]:
    """Return what `expr` uses and docs/metrics.md and the recording rules do not have."""
    documented, recorded = promql.documented(), promql.recorded()
    found, known = [], set(promql.OUTER)
    for use in promql.uses(expr):
        if use.metric in recorded:
            below = promql.uses(recorded[use.metric])
            labels = frozenset().union(*(documented[each.metric] for each in below))
        elif use.metric in documented:
            labels = documented[use.metric]
        else:
            found.append(use.metric)
            continue
        known |= labels
        found += [f"{use.metric}{{{name}}}" for name in use.labels - labels - promql.OUTER]
    return found + sorted(promql.groupings(expr) - known)


def test_faults_are_found() -> None:
    assert faults("croupier_nothing > 0") == ["croupier_nothing"]
    assert faults('croupier_tasks{agent="a"}') == ["croupier_tasks{agent}"]
    assert faults("sum by (rack) (croupier_tasks)") == ["rack"]
    assert faults('sum by (state) (croupier_tasks{state="RUNNING"})') == []


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_rules_use_what_is_exported(name: str) -> None:
    assert promql.uses(EXPRESSIONS[name]) or "up{" in EXPRESSIONS[name]
    assert faults(EXPRESSIONS[name]) == []


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_has_a_severity_and_a_page(rule: dict[str, dict[str, str]]) -> None:
    name = str(rule["alert"])
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{name.lower()}"
    assert re.search(rf"^## {name}$", RUNBOOK, re.MULTILINE)
    assert {"summary", "description"} < set(rule["annotations"])


def test_the_runbook_has_no_page_of_an_alert_that_is_gone() -> None:
    pages = re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE)
    assert pages == [rule["alert"] for rule in ALERTS]


def test_the_table_names_the_fault_of_each_alert() -> None:
    text = (promql.RULES / "README.md").read_text()
    rows = re.findall(r"^\| (\w+) \| [^|]+ \| `(\w+\.py)` \|$", text, re.MULTILINE)
    assert [f"Croupier{name}" for name, _ in rows] == [rule["alert"] for rule in ALERTS]
    for name, file in rows:
        forced = promql.REPO / "tests/integration/prometheus" / file
        assert f'"{name}"' in forced.read_text(), f"{file} does not force {name}"


# The dashboards are those of the tables, and use metrics and labels that exist.


PATHS = sorted(promql.DASHBOARDS.glob("*.json"))
PANELS = list(promql.panels())


def test_the_files_are_those_of_the_tables() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "deploy.dashboards", "--check"],
        cwd=promql.REPO,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_subject_has_a_dashboard() -> None:
    names = [path.stem for path in PATHS]
    assert names == ["capacity", "fairness", "latency", "overview", "task-life"]
    assert len(PANELS) > 80


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_panels_fit_on_the_page(path: Path) -> None:
    dashboard = json.loads((promql.DASHBOARDS / f"{path.stem}.json").read_text())
    assert dashboard["uid"] == f"croupier-{path.stem}"
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken
        assert panel["description"].endswith(".")
        taken |= cells


@pytest.mark.parametrize(("dashboard", "title", "expr"), PANELS)
def test_panels_use_what_is_exported(dashboard: str, title: str, expr: str) -> None:
    assert faults(expr) == []
    # The page shows one cluster, or all.
    for use in promql.uses(expr):
        assert "cluster" in use.labels
