"""The dashboard fairness: shares and entitlements, and who waits."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.panels import RATE, Dashboard, Panel, rates

FAIRNESS: Final = Dashboard(
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
            "Settings of roles, and the factor of past use. Limits of mem and disk are in bytes.",
            {
                "weight {{role}}": "croupier_role_weight",
                "factor of past use {{role}}": "croupier_role_weight_factor",
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
