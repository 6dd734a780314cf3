"""Frameworks, as commands show them."""

from __future__ import annotations

from croupier.cli.table import Column, Table, age, amount, number, object_id, text
from croupier.cli.terminal import View, demand_text, running
from croupier.model.durations import duration_text


def state_text(framework: View) -> str:
    """Return the framework's state, such as `disconnected, removed in 9 min 20 s`."""
    words = [framework["state"]]
    if suppresses(framework):
        words.append("suppressed")
    if framework["removed_in_s"] is not None:
        words.append(f"removed in {duration_text(framework['removed_in_s'])}")
    return ", ".join(words)


def suppresses(framework: View) -> bool:
    """Return whether the framework suppressed offers while it has declared demand."""
    counts = [each["count"] for each in framework["demands"]]
    waiting = framework["queued"] - framework["lined_up"]
    return framework["suppressed"] and (None in counts or sum(counts) > waiting)


def wants_text(framework: View) -> str:
    """Return the framework's demand; empty if it takes whole offers."""
    wanted = [each for each in framework["demands"] if each["count"] != 0]
    if wanted:
        return ", ".join(map(demand_text, wanted))
    return "nothing more" if framework["demands"] or framework["suppressed"] else ""


FRAMEWORKS = Table(
    (
        text("NAME", "name"),
        object_id("FRAMEWORK", "framework_id", 1),
        Column("ROLE", lambda view: ",".join(view["roles"]), rank=5),
        Column("STATE", state_text, rank=4),
        number("SHARE", "share", 2, form=".3f"),
        Column("RUNNING", lambda view: str(running(view)), is_number=True, rank=3),
        number("QUEUED", "queued", 3),
        number("OFFERS", "offers", 9),
        amount("USED", "used", 6),
        amount("OFFERED", "offered", 10),
        Column("WANTS", lambda view: wants_text(view) or "whole offers", rank=8),
        age("CONNECTED", "age_s", 7),
    ),
    "no frameworks are registered",
)
