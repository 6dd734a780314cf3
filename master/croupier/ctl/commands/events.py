"""`croupier events`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from croupier.cli.flags import LOCAL, MasterFlag
from croupier.ctl.app import app


@app.command
def events(
    *,
    follow: Annotated[bool, Parameter(name=("--follow", "-f"), negative="")] = False,
    since: str = "",
    kind: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    limit: Annotated[int, Parameter(name=("--limit", "-n"))] = 0,
    master: MasterFlag = LOCAL,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Show what happened in the cluster: agents, frameworks, tasks, roles and masters.

    The master that leads remembers the last 10,000 events of its term.

    Parameters
    ----------
    follow
        Go on with what happens, also on the next master after a failover.
    since
        Only events of this last time, such as 10m, or after the event of this id, such as 3-1042.
    kind
        Only events of this kind, such as task-failed, or whose kind begins with this word, such as
        agent; `problem` is all that failed, or is not as it should be. May be given several times.
    limit
        Most events of the past: the latest, or with an id the first after it. 0 shows all.
    as_json
        Print each event as a JSON object on a line of its own.
    """
    from croupier.ctl.events import EventOptions, print_events
    from croupier.model.errors import InvalidRequest

    if limit < 0:
        raise InvalidRequest("--limit must not be negative")
    print_events(master, EventOptions(follow, since, kind, limit, as_json))
