"""The dashboards are those of the tables, and use metrics and labels that exist."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import promql
from tests.unit.deploy.test_prometheus_rules import faults

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
