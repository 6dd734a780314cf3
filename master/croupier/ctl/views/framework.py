"""Frameworks, as commands show them."""

from __future__ import annotations

from croupier.ctl.table import Column, Table, age, amount, number, object_id, text
from croupier.ctl.views.amounts import View, demand_text
from croupier.model.durations import duration_text


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
        text("NAME", "name"),
        object_id("FRAMEWORK", "framework_id", 1),
        Column("ROLE", lambda view: ",".join(view["roles"]), rank=5),
        Column("STATE", state_text, rank=4),
        number("SHARE", "share", 2, form=".3f"),
        number("TASKS", "tasks", 3),
        number("OFFERS", "offers", 9),
        amount("USED", "used", 6),
        amount("OFFERED", "offered", 10),
        Column(
            "WANTS",
            lambda view: ", ".join(map(demand_text, view["demands"])) or "whole offers",
            rank=8,
        ),
        age("CONNECTED", "age_s", 7),
    ),
    "no frameworks are registered",
)
