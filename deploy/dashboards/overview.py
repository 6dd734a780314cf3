"""The dashboard overview: the cluster at a glance."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.panels import RATE, Dashboard, Panel, rates, stat

_ENDS: Final = "FINISHED|FAILED|KILLED|ERROR|LOST|DROPPED|GONE|GONE_BY_OPERATOR"
_ENDED: Final = f'croupier_task_transitions_total{{state=~"{_ENDS}"}}'

OVERVIEW: Final = Dashboard(
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
            "Alerts that fire or are pending. docs/runbook.md has a section for each.",
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
            {"{{state}}": f"sum by (state) (rate({_ENDED}{RATE}))"},
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
