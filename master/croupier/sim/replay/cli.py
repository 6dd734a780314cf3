"""`croupier replay`: flags and help; the work is in the modules beside this one.

Rule: what a command needs is imported within it, so that `--help` stays fast.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from croupier.process.cli import make_app

ABOUT = """Look back at what a master did, by the event log that --event-log keeps.

Its core is given every event again, and must decide the same, byte for byte. Shown are shares
over time, waits and utilisation, as recorded. With --weights, --quota or --policy the same
work is played twice in the simulator, as it was set and as it would be, and what differs is
shown; what that rests on is printed with it.
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
        Only see whether decisions are the same; an error if the log has no beginning.
    weights
        What roles would weigh, such as ads=2,web=0.5.
    quota
        What a role would be guaranteed and limited to, such as
        'ads=guarantee:cpus:4;mem:8GB,limit:cpus:8'; none for nothing, and no limit. May be
        repeated.
    policy
        Whose turn it would be: drf, yarn-drf, fifo, asset, single-resource, slots or random.
    as_json
        Print JSON for programs.
    """
    from croupier.sim.replay.change import Change
    from croupier.sim.replay.command import replay

    change = Change.parse(weights or (), quota or (), policy)
    replay(log, change, verify=verify, as_json=as_json)
