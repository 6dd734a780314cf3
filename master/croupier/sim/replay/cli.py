"""`croupier replay`: flags and help.

Rule: the command imports its modules when it runs, so that `--help` stays fast.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from croupier.process.cli import make_app

ABOUT = """Replay a master's event log, which --event-log writes.

The core decides every event again, and must decide the same, byte for byte. The output shows
shares over time, waits and utilisation as recorded. With --weights, --quota or --policy the
simulator runs the same work with the recorded and with the other settings, and the output shows
the differences and the assumptions.
"""

app = make_app("replay", ABOUT, reads_environment=False)


@app.default
def replay_log(
    log: Path,
    /,
    *,
    verify: Annotated[bool, Parameter(negative="")] = False,
    weights: Annotated[list[str] | None, Parameter(negative="")] = None,
    quota: Annotated[list[str] | None, Parameter(negative="")] = None,
    policy: str | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Replay a log.

    Parameters
    ----------
    log
        The file that --event-log names, for the master's last run; for an earlier one any of
        its older files, LOG.000001 and so on. All files of that run are read.
    verify
        Only verify the decisions; an error if the beginning of the log is missing.
    weights
        Other weights of roles, such as ads=2,web=0.5.
    quota
        Another guarantee and limit of a role, such as
        'ads=guarantee:cpus:4;mem:8GB,limit:cpus:8'; `none` removes one. May be repeated.
    policy
        Another allocation policy: drf, yarn-drf, fifo, asset, single-resource, slots or random.
    as_json
        Print JSON for programs.
    """
    from croupier.sim.replay.change import Change
    from croupier.sim.replay.command import replay

    change = Change.parse(weights or (), quota or (), policy)
    replay(log, change, verify=verify, as_json=as_json)
