"""`croupier top`."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from croupier.cli.flags import LOCAL, MasterFlag
from croupier.ctl.app import app


@app.command
def top(
    *,
    once: Annotated[bool, Parameter(negative="")] = False,
    sort: Literal["share", "tasks", "offers", "name"] = "share",
    text: str = "",
    master: MasterFlag = LOCAL,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Show the cluster live: resources, failed tasks, agents with problems, roles, frameworks.

    Keys: q quits, s changes the order of frameworks, / filters. After a failover it goes on with
    the next master. It asks the master every second, or less often if answers are slow, and never
    for all tasks.

    Parameters
    ----------
    once
        Print one frame and end.
    sort
        Order of the frameworks.
    text
        Only roles, frameworks and agents with this text.
    as_json
        Print one frame as JSON.
    """
    from croupier.ctl.top.command import print_once, run_top
    from croupier.ctl.top.frame import Display, Order

    display = Display(Order(sort), text)
    if once or as_json:
        print_once(master, display, as_json=as_json)
    else:
        run_top(master, display)
