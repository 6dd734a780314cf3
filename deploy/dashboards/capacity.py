"""The dashboard capacity: resources and agents."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.panels import RATE, Dashboard, Panel, amounts, rates

CAPACITY: Final = Dashboard(
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
