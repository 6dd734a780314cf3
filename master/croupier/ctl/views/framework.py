"""Frameworks, as commands show them."""

from __future__ import annotations

from croupier.ctl.table import Column, Table, amount, number, text
from croupier.ctl.views.amounts import (
    View,
    amount_view,
    demand_text,
    demand_view,
    labels_view,
    seconds,
    shares_view,
)
from croupier.model.durations import duration_text
from croupier.v1 import operator_pb2 as pb


def framework_view(framework: pb.FrameworkView) -> View:
    """Return one framework; `removed_in_s` is None unless it is disconnected."""
    info = framework.framework
    return {
        "framework_id": info.framework_id,
        "name": info.name,
        "roles": list(info.roles),
        "state": framework.state,
        "suppressed": framework.suppressed,
        "hostname": info.hostname,
        "webui_url": info.webui_url,
        "failover_timeout_s": info.failover_timeout_ms / 1000,
        "labels": labels_view(info.labels),
        "demands": [demand_view(demand) for demand in framework.demands],
        "used": amount_view(framework.used),
        "offered": amount_view(framework.offered),
        **shares_view(framework),
        "suppressed_roles": list(framework.suppressed_roles),
        "tasks": framework.tasks,
        "offers": framework.offers,
        "removed_in_s": seconds(framework, "removed_in_ms"),
    }


def state_text(framework: View) -> str:
    """Return the framework's state, such as `disconnected, removed in 9 min 20 s`."""
    words = [framework["state"]]
    if framework["suppressed"]:
        words.append("suppressed")
    if framework["removed_in_s"] is not None:
        words.append(f"removed in {duration_text(framework['removed_in_s'])}")
    return ", ".join(words)


FRAMEWORKS = Table(
    (
        text("FRAMEWORK", "framework_id", is_id=True),
        text("NAME", "name"),
        Column("ROLE", lambda view: ",".join(view["roles"]), rank=1),
        Column("STATE", state_text),
        number("SHARE", "share", form=".3f"),
        number("TASKS", "tasks"),
        number("OFFERS", "offers", 4),
        amount("USED", "used", 2),
        amount("OFFERED", "offered", 5),
        Column(
            "WANTS",
            lambda view: ", ".join(map(demand_text, view["demands"])) or "whole offers",
            rank=3,
        ),
    ),
    "no frameworks are registered",
)
