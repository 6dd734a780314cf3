"""`croupier replay`, a command of the simulator."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from croupier.ctl.app import app
from croupier.model.errors import CroupierError, InvalidRequest
from croupier.model.printable import printable_lines
from croupier.sim.replay.change import Change
from croupier.sim.replay.report import print_found, print_json
from croupier.sim.replay.result import find
from croupier.sim.report import progress_bar


@app.command
def replay(
    log: Path,
    /,
    *,
    verify: Annotated[bool, Parameter(negative="")] = False,
    weights: Annotated[list[str] | None, Parameter(negative="")] = None,
    quota: Annotated[list[str] | None, Parameter(negative="")] = None,
    policy: str | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Replay a master's event log: check its decisions, or compare other settings.

    A master with --event-log writes the log. The core decides every event again, and must decide
    the same, byte for byte. The output shows shares over time, waits and utilization as recorded.
    With --weights, --quota or --policy the simulator runs the same work with the recorded and with
    the other settings, and the output shows the differences and the assumptions.

    Args:
        log: The path of --event-log for the master's last run; for an earlier run one of its older
            files, such as LOG.000001. All files of that run are read.
        verify: Only verify the decisions. It is an error if the beginning of the log is missing.
        weights: Other weights of roles, such as ads=2,web=0.5.
        quota: Another guarantee and limit of a role, such as
            'ads=guarantee:cpus:4;mem:8GB,limit:cpus:8'; `none` removes one. May be repeated.
        policy: Another allocation policy: drf, yarn-drf, fifo, asset, single-resource, slots or
            random.
        as_json: Print JSON for programs.
    """
    change = Change.parse(weights or (), quota or (), policy)
    if verify and change:
        raise InvalidRequest("--verify checks the recorded decisions: it takes no changes")
    try:
        with progress_bar() as progress:
            found = find(log, change, progress, verify=verify)
    except CroupierError as error:
        # The message may quote the log.
        raise type(error)(printable_lines(str(error))) from error
    (print_json if as_json else print_found)(found, sys.stdout)
