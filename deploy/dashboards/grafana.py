"""Dashboards as Grafana imports them.

Each metric of Croupier is restricted to the clusters that are chosen on the dashboard.
"""

from __future__ import annotations

import re
from typing import Any, Final

from deploy.dashboards.panels import Dashboard, Panel

_COLUMNS: Final = 24
_METRIC: Final = re.compile(r"(?<![\w:])((?:\w+:)?croupier_\w+(?::\w+)?)(?:\{([^}]*)\})?")
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def of_chosen_clusters(query: str) -> str:
    """Restrict each metric of `query` to the clusters that are chosen on the dashboard."""

    def restricted(match: re.Match[str]) -> str:
        name, matchers = match.groups()
        chosen = 'cluster=~"$cluster"'
        return f"{name}{{{matchers},{chosen}}}" if matchers else f"{name}{{{chosen}}}"

    return _METRIC.sub(restricted, query)


def panel_json(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    """Return a panel at a place on the dashboard."""
    is_now = panel.kind != "timeseries"
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.top is not None:
        defaults["max"] = panel.top
    if panel.kind == "timeseries":
        fill, stacking = (40, "normal") if panel.is_stacked else (0, "none")
        defaults["custom"] = {"fillOpacity": fill, "stacking": {"mode": stacking}, "lineWidth": 1}
    elif panel.kind == "table":
        defaults["custom"] = {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False}
    targets = [
        {
            "refId": chr(ord("A") + at),
            "expr": of_chosen_clusters(query),
            "legendFormat": legend,
            "datasource": _SOURCE,
            **({"instant": True, "format": "table"} if panel.kind == "table" else {}),
            **({"instant": True} if is_now else {}),
        }
        for at, (legend, query) in enumerate(panel.queries.items())
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel),
        "transformations": [{"id": "merge", "options": {}}] if panel.kind == "table" else [],
        "targets": targets,
    }


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "timeseries":
        return {
            "legend": {
                "showLegend": True,
                "displayMode": "table",
                "placement": "right",
                "calcs": ["lastNotNull"],
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    if panel.kind == "table":
        return {"showHeader": True, "frameIndex": 0}
    # Grafana's defaults, which its schema requires.
    return {
        "reduceOptions": {"calcs": ["lastNotNull"]},
        "orientation": "auto",
        "textMode": "auto",
        "colorMode": "value",
        "graphMode": "area",
        "justifyMode": "auto",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
    }


def laid_out(panels: tuple[Panel, ...]) -> list[dict[str, Any]]:
    """Return the panels from left to right, row by row."""
    found, x, y, height = [], 0, 0, 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > _COLUMNS:
            x, y, height = 0, y + height, 0
        found.append(panel_json(panel, number, x, y))
        x, height = x + panel.width, max(height, panel.height)
    return found


def dashboard_json(dashboard: Dashboard) -> dict[str, Any]:
    """Return a dashboard as Grafana imports it."""
    variables = [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        {
            "name": "cluster",
            "label": "Cluster",
            "type": "query",
            "datasource": _SOURCE,
            "query": "label_values(croupier_master_leader, cluster)",
            "refresh": 2,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        },
    ]
    return {
        "uid": f"croupier-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["croupier"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "graphTooltip": 1,
        "links": [
            {
                "type": "dashboards",
                "tags": ["croupier"],
                "title": "Croupier",
                "tooltip": "",
                "icon": "external link",
                "targetBlank": False,
                "asDropdown": True,
                "keepTime": True,
                "includeVars": True,
            }
        ],
        "templating": {"list": variables},
        "panels": laid_out(dashboard.panels),
    }
