"""The metrics and labels that PromQL expressions use, and those that docs/metrics.md lists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

REPO = Path(__file__).resolve().parents[2]
RULES = REPO / "deploy/prometheus"
DASHBOARDS = REPO / "deploy/grafana/dashboards"
# Labels that Prometheus adds, and `cluster`, which an operator may add.
OUTER = frozenset({"cluster", "job", "instance", "le", "alertname", "alertstate", "severity"})
_METRIC = re.compile(r"(?<![\w:\"'])((?:\w+:)?croupier_\w+(?::\w+)?)(?:\{([^}]*)\})?")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPING = re.compile(r"\b(?:by|on|ignoring|without)\s*\(([^)]*)\)")
_ROW = re.compile(r"^\| `(\w+)(?:\{([\w,]+)\})?` \| (\w+) \|")


@dataclass(frozen=True, slots=True)
class Use:
    """A metric that an expression uses, with labels that it compares."""

    metric: str
    labels: frozenset[str]


def uses(expr: str) -> list[Use]:
    """Return the metrics and recorded series that `expr` uses."""
    found = _METRIC.findall(expr)
    return [Use(name, frozenset(_LABEL.findall(matchers))) for name, matchers in found]


def groupings(expr: str) -> frozenset[str]:
    """Return the labels that aggregations and matches of `expr` name."""
    named = (part.split(",") for part in _GROUPING.findall(expr))
    return frozenset(label.strip() for labels in named for label in labels if label.strip())


def documented() -> dict[str, frozenset[str]]:
    """Return the labels of each exported series that docs/metrics.md lists."""
    found: dict[str, frozenset[str]] = {}
    for line in (REPO / "docs/metrics.md").read_text().splitlines():
        if match := _ROW.match(line):
            name, labels, kind = match.groups()
            names = [f"croupier_{name}"]
            if kind == "histogram":
                names = [f"croupier_{name}_{part}" for part in ("bucket", "sum", "count")]
            found |= dict.fromkeys(names, frozenset(filter(None, (labels or "").split(","))))
    return found


def rules(name: str) -> list[dict[str, Any]]:
    """Return the rules of a file in deploy/prometheus."""
    groups = yaml.safe_load((RULES / name).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def recorded() -> dict[str, str]:
    """Return the expression of each recorded series."""
    return {rule["record"]: rule["expr"] for rule in rules("recording.yml")}


def panels() -> Iterator[tuple[str, str, str]]:
    """Yield the dashboard, title and expression of each query of a panel."""
    for path in sorted(DASHBOARDS.glob("*.json")):
        dashboard = json.loads(path.read_text())
        for panel in dashboard["panels"]:
            for target in panel.get("targets", ()):
                yield path.stem, panel["title"], target["expr"]
