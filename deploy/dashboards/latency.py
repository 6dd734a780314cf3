"""The dashboard latency: the time of each part of the master and of agents."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.panels import RATE, Dashboard, Panel, quantiles, rates

_UNAUTHENTICATED: Final = "croupier_authentication_failures_total"

LATENCY: Final = Dashboard(
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
                "no credential": f"sum(rate({_UNAUTHENTICATED}{RATE})) or vector(0)",
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
