"""`croupier cron`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from croupier.cli.flags import LOCAL, MasterFlag
from croupier.process.cli import make_app

cron = make_app(
    "cron", "Run jobs on a schedule: croupier cron FILE. See docs/cron.md.", reads_environment=False
)

FileArgument = Annotated[Path, Parameter(help="The cron file, in TOML or YAML.")]
StateFlag = Annotated[
    Path | None,
    Parameter(
        help="The state file; by default NAME.db in $XDG_STATE_HOME/croupier/cron, where NAME is"
        " the file's `name`, or its own name without the ending."
    ),
]


@cron.default
def run(
    file: FileArgument,
    /,
    *,
    check: Annotated[bool, Parameter(negative="")] = False,
    state: StateFlag = None,
    master: MasterFlag = LOCAL,
) -> int | None:
    """Run the jobs of a file at their times, until SIGTERM or Ctrl-C.

    Runs go on when this command ends, for up to 7 days: the next one takes them over. After a
    kill -9 of this command, a master or an agent no run is lost, and none is done twice.

    A file:

        timezone = "Europe/Vienna"

        [jobs.backup]
        schedule = "30 2 * * *"
        shell = "pg_dump db | gzip > /backup/$CROUPIER_CRON_TIME.gz"

    Exit codes: 0 ended by a signal; 1 the master refused, another copy runs, or the state cannot
    be used; 2 a mistake in the file or the command line.

    Args:
        check: Check the file, print its jobs with their next times, and run nothing.
    """
    from croupier.apps.cron.cron_file import read_cron_file
    from croupier.apps.cron.framework import run_cron
    from croupier.apps.cron.listing import print_jobs

    read = read_cron_file(file)
    if not check:
        return run_cron(read, master, state)
    print_jobs(read)
    return None


cron.command("croupier.apps.cron.listing:print_next", name="next")
cron.command("croupier.apps.cron.listing:print_history", name="history")
