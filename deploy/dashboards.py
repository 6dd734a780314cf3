"""Makes the Grafana dashboards in deploy/grafana/dashboards.

    python deploy/dashboards.py            # write them
    python deploy/dashboards.py --check    # exit 1 if they differ from this table

A panel is one entry of `DASHBOARDS`: a title, a text for people, queries with their legends, and a
unit of Grafana. Each metric of Croupier is restricted to the clusters that the page shows.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

FOLDER = Path(__file__).resolve().parent / "grafana/dashboards"
COLUMNS = 24
RATE = "[$__rate_interval]"
_METRIC = re.compile(r"(?<![\w:])((?:\w+:)?croupier_\w+(?::\w+)?)(?:\{([^}]*)\})?")
UNAUTHENTICATED = "croupier_authentication_failures_total"
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_ENDS = "FINISHED|FAILED|KILLED|ERROR|LOST|DROPPED|GONE|GONE_BY_OPERATOR"
ENDED_5M = "cluster:croupier_tasks_ended:rate5m"
ENDED = f'croupier_task_transitions_total{{state=~"{_ENDS}"}}'
FAILED = 'cluster:croupier_tasks_ended:rate5m{state!~"FINISHED|KILLED"}'


@dataclass(frozen=True, slots=True)
class Panel:
    """One graph.

    Attributes:
        queries: PromQL by legend; `{{label}}` in a legend is the value of a label.
        unit: of Grafana, such as `s`, `bytes` or `percentunit`.
        width: in 24ths of the page.
        top: the highest value of the axis.
    """

    title: str
    text: str
    queries: dict[str, str]
    unit: str = "short"
    kind: Literal["timeseries", "stat", "table"] = "timeseries"
    width: int = 12
    is_stacked: bool = False
    top: float | None = None

    @property
    def height(self) -> int:
        """In rows of Grafana."""
        return 4 if self.kind == "stat" else 8


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One page; `name` is that of its file."""

    name: str
    title: str
    panels: tuple[Panel, ...]


def stat(title: str, text: str, query: str, unit: str = "short") -> Panel:
    """Return a panel with one number."""
    return Panel(title, text, {title: query}, unit, "stat", 4)


def quantiles(metric: str, *labels: str, which: tuple[float, ...] = (0.5, 0.99)) -> dict[str, str]:
    """Return queries for quantiles of a histogram, by labels."""
    by = ", ".join(("le", *labels))
    legend = " ".join(f"{{{{{label}}}}}" for label in labels)
    rate = f"sum by ({by}) (rate({metric}_bucket{RATE}))"
    return {
        f"{legend} p{quantile * 100:g}".strip(): f"histogram_quantile({quantile}, {rate})"
        for quantile in which
    }


def rates(metric: str, *labels: str) -> dict[str, str]:
    """Return a query for the rate of a counter, by labels."""
    by = f" by ({', '.join(labels)})" if labels else ""
    legend = " ".join(f"{{{{{label}}}}}" for label in labels) or "all"
    return {legend: f"sum{by} (rate({metric}{RATE}))"}


def amounts(resource: str) -> dict[str, str]:
    """Return queries for the used, offered and free amount of a resource."""

    def amount(state: str) -> str:
        return f'sum(croupier_resources{{resource="{resource}",state="{state}"}})'

    free = f"{amount('total')} - {amount('used')} - {amount('offered')}"
    return {"used": amount("used"), "offered": amount("offered"), "free": free}


OVERVIEW = Dashboard(
    "overview",
    "Croupier: overview",
    (
        stat("Leaders", "1 in a healthy cluster.", "sum(croupier_master_leader)"),
        stat(
            "Agents connected",
            "Agents that answer.",
            'sum(croupier_agents{state="connected"})',
        ),
        stat(
            "Agents away",
            "Suspected, disconnected or unreachable agents.",
            'sum(croupier_agents{state=~"suspect|disconnected|unreachable"})',
        ),
        stat(
            "Frameworks connected",
            "Frameworks with an open session.",
            'sum(croupier_frameworks{state="connected"})',
        ),
        stat("Tasks running", "Tasks that run now.", 'sum(croupier_tasks{state="RUNNING"})'),
        stat(
            "Tasks queued",
            "Submitted tasks without an agent.",
            'sum(croupier_tasks{state="QUEUED"})',
        ),
        Panel(
            "Use of the cluster",
            "The part of each resource that tasks use.",
            {"{{resource}}": "cluster:croupier_used:ratio"},
            "percentunit",
            top=1,
        ),
        Panel(
            "Alerts",
            "Alerts that fire or are pending. docs/runbook.md has a page for each.",
            {
                "{{alertname}}": "sum by (alertname, alertstate, severity)"
                ' (ALERTS{alertname=~"Croupier.*"}) or vector(0)'
            },
            kind="table",
        ),
        Panel("Tasks", "Tasks by state.", {"{{state}}": "sum by (state) (croupier_tasks) > 0"}),
        Panel(
            "Ends of tasks",
            "Tasks that ended, in each second, by their last state.",
            {"{{state}}": f"sum by (state) (rate({ENDED}{RATE}))"},
            "ops",
        ),
        Panel(
            "Offers",
            "Offers by outcome, in each second.",
            rates("croupier_offers_total", "outcome"),
            "ops",
        ),
        Panel(
            "Loop lag",
            "The delay that 1 % of the turns of an event loop exceed. Above 0.25 s an alert fires.",
            {"{{instance}}": "instance:croupier_loop_lag_seconds:p99"},
            "s",
        ),
        Panel(
            "Masters",
            "The epoch of the term of the leader, and since when each master runs.",
            {
                "epoch {{instance}}": "croupier_master_epoch",
                "leader {{instance}}": "croupier_master_leader",
                "up for {{instance}}": "time() - croupier_master_start_time_seconds",
            },
            kind="table",
        ),
        Panel(
            "Terms",
            "Terms that began and ended within 10 minutes: each is a change of the leader.",
            {
                "began {{instance}}": "increase(croupier_master_terms_total[10m])",
                "ended {{instance}}: {{why}}": "increase(croupier_master_term_ends_total[10m])",
            },
        ),
    ),
)

FAIRNESS = Dashboard(
    "fairness",
    "Croupier: fairness",
    (
        Panel(
            "Shares of roles",
            "Dominant shares of the roles at the top, offered and used.",
            {"{{role}}": 'croupier_role_dominant_share{role!~".*/.*"}'},
            "percentunit",
            is_stacked=True,
        ),
        Panel(
            "Entitlements of roles",
            "The shares that roles are due. 0: the role neither wants nor holds anything.",
            {"{{role}}": 'croupier_role_entitlement{role!~".*/.*"}'},
            "percentunit",
            is_stacked=True,
        ),
        Panel(
            "Roles: share of the entitlement",
            "1 is what is due. A role below 1 gets less, or wants no more.",
            {"{{role}}": "role:croupier_satisfaction:ratio"},
            "percentunit",
        ),
        Panel(
            "Frameworks: share of the entitlement",
            "1 is what is due. Below 1 and waiting is starving.",
            {"{{name}} {{framework}}": "framework:croupier_satisfaction:ratio"},
            "percentunit",
        ),
        Panel(
            "Shares of frameworks",
            "Dominant shares, offered and used.",
            {"{{name}} {{framework}}": "croupier_framework_dominant_share"},
            "percentunit",
            is_stacked=True,
        ),
        Panel(
            "Waiting",
            "Units of demand and queued tasks that wait for resources.",
            {"{{name}} {{framework}}": "croupier_framework_pending"},
        ),
        Panel(
            "Starving",
            "Frameworks that wait with less than half of their entitlement.",
            {
                "frameworks": "count((croupier_framework_pending > 0)"
                " and croupier_framework_dominant_share < 0.5 * croupier_framework_entitlement)"
                " or vector(0)"
            },
        ),
        Panel(
            "Preemptions",
            "Preemptions for starving frameworks, and their victims, in each second.",
            {
                "preemptions": f"sum(rate(croupier_preemptions_total{RATE}))",
                **rates("croupier_preemption_victims_total", "outcome"),
            },
            "ops",
        ),
        Panel(
            "Tasks of frameworks",
            "Tasks that have not ended.",
            {"{{name}} {{framework}}": "croupier_framework_tasks"},
        ),
        Panel(
            "Back-offs",
            "Frameworks that left offers unanswered, and wait behind the others.",
            rates("croupier_back_offs_total"),
            "ops",
        ),
        Panel(
            "Weights, guarantees and limits",
            "Settings of roles. A guarantee or limit of mem and disk is in bytes.",
            {
                "weight {{role}}": "croupier_role_weight",
                "guarantee {{role}} {{resource}}": "croupier_role_guarantee",
                "limit {{role}} {{resource}}": "croupier_role_limit",
            },
            kind="table",
        ),
        Panel(
            "Filters and offers",
            "Decline filters in force, and outstanding offers.",
            {
                "filters": "sum(croupier_offer_filters)",
                "offers": "sum(croupier_offers_outstanding)",
            },
        ),
    ),
)

LATENCY = Dashboard(
    "latency",
    "Croupier: latency",
    (
        Panel(
            "From a change to its allocation",
            "The time until the master looks at free resources again.",
            quantiles("croupier_allocation_wait_seconds"),
            "s",
        ),
        Panel(
            "A slice of an allocation pass",
            "Slices hold the event loop.",
            quantiles("croupier_allocation_seconds"),
            "s",
        ),
        Panel(
            "Batches",
            "The time to decide a batch of events.",
            quantiles("croupier_batch_seconds"),
            "s",
        ),
        Panel(
            "Commits",
            "The time to make records durable. Every decision waits for it.",
            quantiles("croupier_registry_write_seconds"),
            "s",
        ),
        Panel(
            "Loop lag",
            "The delay of timers on the event loops of masters and agents.",
            quantiles("croupier_loop_lag_seconds", "instance", which=(0.99,)),
            "s",
        ),
        Panel(
            "Offers are held for",
            "The time from an offer to its answer, rescission or expiry.",
            quantiles("croupier_offer_hold_seconds", which=(0.5, 0.9)),
            "s",
        ),
        Panel(
            "Queues",
            "Messages that wait in the leader.",
            {"{{queue}}": "sum by (queue) (croupier_queue_depth)"},
        ),
        Panel(
            "Messages dropped",
            "The peer had disconnected or did not read.",
            rates("croupier_messages_dropped_total", "instance"),
            "ops",
        ),
        Panel(
            "Calls",
            "Calls of frameworks, in each second.",
            rates("croupier_calls_total", "call", "outcome"),
            "ops",
        ),
        Panel(
            "Events",
            "Events that the core decided, in each second.",
            rates("croupier_loop_events_total"),
            "ops",
        ),
        Panel(
            "Refused and delayed",
            "Calls above the rate of their principal, without a credential or a permission.",
            {
                "rate: {{outcome}}": f"sum by (outcome) (rate(croupier_rate_limited_total{RATE}))",
                "no credential": f"sum(rate({UNAUTHENTICATED}{RATE})) or vector(0)",
                "no permission": f"sum(rate(croupier_calls_denied_total{RATE})) or vector(0)",
            },
            "ops",
        ),
        Panel(
            "Agents: commits and turns",
            "The time of a commit of records, and of a turn of the agent's driver.",
            {
                f"{what} {legend}": query
                for what, metric in (("commit", "checkpoint_commit"), ("turn", "turn"))
                for legend, query in quantiles(f"croupier_agent_{metric}_seconds").items()
            },
            "s",
        ),
        Panel(
            "Processor time",
            "Processors that each daemon uses. Above 0.9 a daemon is the bottleneck.",
            rates("croupier_process_cpu_seconds_total", "instance"),
        ),
        Panel(
            "Memory",
            "Memory of each daemon.",
            {"{{instance}}": "croupier_process_resident_bytes"},
            "bytes",
        ),
        Panel(
            "Open files",
            "The used part of the limit. Above 0.8 an alert fires.",
            {"{{instance}}": "croupier_process_open_files / croupier_process_open_files_limit"},
            "percentunit",
        ),
        Panel(
            "Audit and event log",
            "Lines and events that were lost.",
            {
                "audit: {{why}}": f"sum by (why) (rate(croupier_audit_lines_lost_total{RATE}))",
                "event log": f"sum(rate(croupier_event_log_dropped_total{RATE})) or vector(0)",
            },
            "ops",
        ),
    ),
)

CAPACITY = Dashboard(
    "capacity",
    "Croupier: capacity",
    (
        Panel("Cpus", "All registered agents together.", amounts("cpus"), is_stacked=True),
        Panel(
            "Memory", "All registered agents together.", amounts("mem"), "bytes", is_stacked=True
        ),
        Panel("Disk", "All registered agents together.", amounts("disk"), "bytes", is_stacked=True),
        Panel(
            "Used",
            "The part of each resource that tasks use, gpus and others included.",
            {"{{resource}}": "cluster:croupier_used:ratio"},
            "percentunit",
            top=1,
        ),
        Panel(
            "Missing",
            "Capacity of agents that have not returned to this leader.",
            {"{{resource}}": 'sum by (resource) (croupier_resources{state="missing"})'},
        ),
        Panel(
            "Processors: dealt and busy",
            "Cpus that tasks were given, and those that they keep busy.",
            {
                "given": 'sum(croupier_agent_resources{resource="cpus",state="used"})',
                "busy": f"sum(rate(croupier_agent_tasks_cpu_seconds_total{RATE}))",
            },
        ),
        Panel(
            "Memory: dealt and at its peak",
            "Memory that tasks were given, and the sum of their peaks.",
            {
                "given": 'sum(croupier_agent_resources{resource="mem",state="used"})',
                "peak": "sum(croupier_agent_tasks_memory_peak_bytes)",
            },
            "bytes",
        ),
        Panel(
            "Agents",
            "Agents by state.",
            {"{{state}}": "sum by (state) (croupier_agents)"},
            is_stacked=True,
        ),
        Panel(
            "Agents that come and go",
            "Registrations and removals, in each second.",
            {
                **rates("croupier_agent_registrations_total", "kind"),
                **rates("croupier_agent_removals_total", "reason"),
            },
            "ops",
        ),
        Panel(
            "Agents withheld",
            "Agents that get no offers: by an operator, or because they are unhealthy.",
            {"{{why}}": "sum by (why) (croupier_agents_withheld)"},
        ),
        Panel(
            "Drains",
            "Tasks left on draining agents, and drains that were completed within an hour.",
            {
                "tasks left": "sum(croupier_drain_tasks_left)",
                "completed": "sum(increase(croupier_agents_drained_total[1h]))",
            },
        ),
        Panel(
            "Problems of agents",
            "Agents that cannot launch tasks, by the part with the problem.",
            {"{{part}}": "sum by (part) (croupier_agent_problem)"},
        ),
        Panel(
            "Fullest disks",
            "The ten fullest disks of work directories.",
            {"{{instance}}": "topk(10, croupier_agent_disk_used_ratio)"},
            "percentunit",
            top=1,
        ),
        Panel(
            "Sandboxes",
            "Sandboxes of ended tasks, and those removed in each second.",
            {
                "kept": "sum(croupier_agent_sandboxes_kept)",
                "removed": f"sum(rate(croupier_agent_sandboxes_removed_total{RATE}))",
            },
        ),
    ),
)

TASK_LIFE = Dashboard(
    "task-life",
    "Croupier: the life of a task",
    (
        Panel(
            "Median time of each step",
            "Queued (submitted tasks), starting (from the launch order until it runs), running,"
            " acknowledging (from its end).",
            quantiles("croupier_task_step_seconds", "step", which=(0.5,)),
            "s",
        ),
        Panel(
            "Longest 1 % of each step",
            "The time that 1 % of the tasks exceed.",
            quantiles("croupier_task_step_seconds", "step", which=(0.99,)),
            "s",
        ),
        Panel(
            "Tasks through each step",
            "Tasks that finished a step, in each second.",
            rates("croupier_task_step_seconds_count", "step"),
            "ops",
        ),
        Panel("Tasks", "Tasks by state.", {"{{state}}": "sum by (state) (croupier_tasks) > 0"}),
        Panel(
            "Oldest queued task",
            "How long the oldest submitted task waits. Above 30 minutes an alert fires.",
            {"age": "max(croupier_tasks_queued_oldest_seconds)"},
            "s",
        ),
        Panel(
            "Transitions",
            "Changes of the states of tasks, in each second.",
            rates("croupier_task_transitions_total", "state"),
            "ops",
        ),
        Panel(
            "Ends by reason",
            "Tasks that ended, by state and reason.",
            {"{{state}} {{reason}}": f"sum by (state, reason) ({ENDED_5M})"},
            "ops",
        ),
        Panel(
            "Failures by reason",
            "Tasks that failed or were lost.",
            {"{{state}} {{reason}}": f"sum by (state, reason) ({FAILED})"},
            "ops",
        ),
        Panel(
            "Agents: from an order to a process",
            "The time that an agent takes to start a task.",
            quantiles("croupier_agent_launch_seconds"),
            "s",
        ),
        Panel(
            "Failed launches",
            "Launches that failed, by step.",
            rates("croupier_agent_container_errors_total", "step"),
            "ops",
        ),
        Panel(
            "Limits exceeded",
            "Tasks that failed because they exceeded a limit.",
            rates("croupier_agent_task_limits_exceeded_total", "limit"),
            "ops",
        ),
        Panel(
            "Status updates",
            "Updates that agents sent, sent again, and saw acknowledged.",
            rates("croupier_agent_status_updates_total", "outcome"),
            "ops",
        ),
        Panel(
            "Ends without acknowledgement",
            "Ended tasks that no framework has acknowledged, and updates that agents keep.",
            {
                "ended tasks": "sum(croupier_tasks_unacknowledged)",
                "updates": "sum(croupier_agent_unacknowledged_updates)",
            },
        ),
        Panel(
            "Tasks on agents",
            "Tasks in the records of agents, by state.",
            {"{{state}}": "sum by (state) (croupier_agent_tasks) > 0"},
        ),
    ),
)
DASHBOARDS = (OVERVIEW, FAIRNESS, LATENCY, CAPACITY, TASK_LIFE)


def of_chosen_clusters(query: str) -> str:
    """Restrict each metric of `query` to the clusters that are chosen on the page."""

    def restricted(match: re.Match[str]) -> str:
        name, matchers = match.groups()
        chosen = 'cluster=~"$cluster"'
        return f"{name}{{{matchers},{chosen}}}" if matchers else f"{name}{{{chosen}}}"

    return _METRIC.sub(restricted, query)


def panel_json(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    """Return a panel at a place on the page."""
    is_now = panel.kind != "timeseries"
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.top is not None:
        defaults["max"] = panel.top
    if panel.kind == "timeseries":
        fill, stacking = (40, "normal") if panel.is_stacked else (0, "none")
        defaults["custom"] = {"fillOpacity": fill, "stacking": {"mode": stacking}, "lineWidth": 1}
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
            "legend": {"displayMode": "table", "placement": "right", "calcs": ["lastNotNull"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    return {"reduceOptions": {"calcs": ["lastNotNull"]}} if panel.kind == "stat" else {}


def laid_out(panels: tuple[Panel, ...]) -> list[dict[str, Any]]:
    """Return the panels from left to right, row by row."""
    found, x, y, height = [], 0, 0, 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > COLUMNS:
            x, y, height = 0, y + height, 0
        found.append(panel_json(panel, number, x, y))
        x, height = x + panel.width, max(height, panel.height)
    return found


def dashboard_json(dashboard: Dashboard) -> dict[str, Any]:
    """Return a page as Grafana imports it."""
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
                "asDropdown": True,
                "keepTime": True,
                "includeVars": True,
            }
        ],
        "templating": {"list": variables},
        "panels": laid_out(dashboard.panels),
    }


def files() -> dict[Path, str]:
    """Return the text of each file."""
    return {
        FOLDER / f"{each.name}.json": json.dumps(dashboard_json(each), indent=1) + "\n"
        for each in DASHBOARDS
    }


def main(argv: list[str]) -> int:
    """Write the files, or compare them with `--check`; return the exit code."""
    made = files()
    if argv == ["--check"]:
        known = {path: path.read_text() for path in FOLDER.glob("*.json")}
        if known != made:
            print("the dashboards are not those of the table: run deploy/dashboards.py")
        return int(known != made)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in made.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
