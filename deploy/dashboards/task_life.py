"""The dashboard task-life: the steps and ends of tasks."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.panels import Dashboard, Panel, quantiles, rates

_ENDED_5M: Final = "cluster:croupier_tasks_ended:rate5m"
_FAILED: Final = 'cluster:croupier_tasks_ended:rate5m{state!~"FINISHED|KILLED"}'

TASK_LIFE: Final = Dashboard(
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
            {"{{state}} {{reason}}": f"sum by (state, reason) ({_ENDED_5M})"},
            "ops",
        ),
        Panel(
            "Failures by reason",
            "Tasks that failed or were lost.",
            {"{{state}} {{reason}}": f"sum by (state, reason) ({_FAILED})"},
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
