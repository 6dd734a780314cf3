"""Frameworks, as commands show them."""

from __future__ import annotations

from croupier.ctl.table import Column, Table, amount, number, text
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
