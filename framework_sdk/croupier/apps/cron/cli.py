"""`croupier cron`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from croupier.cli.flags import LOCAL, JsonListFlag, MasterFlag
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
CountFlag = Annotated[
    int,
    Parameter(
        name=["--count", "-n"],
        validator=Number(gte=1, lte=10_000),
        help="Number of entries to show.",
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


@cron.command(name="next")
def cron_next(
    file: FileArgument,
    job: str | None = None,
    /,
    *,
    count: CountFlag = 10,
    as_json: JsonListFlag = False,
) -> None:
    """Show the next times of the jobs of a file, or of one job.

    Args:
        job: The name of a job.
    """
    from croupier.apps.cron.cron_file import read_cron_file
    from croupier.apps.cron.listing import print_next

    print_next(read_cron_file(file), job, count, as_json=as_json)


@cron.command
def history(
    file_or_name: str,
    job: str | None = None,
    /,
    *,
    count: CountFlag = 20,
    as_json: JsonListFlag = False,
    state: StateFlag = None,
) -> None:
    """Show the last runs of the jobs of a file, or of one job. It works while cron runs, too.

    Args:
        file_or_name: The cron file, or its name.
        job: The name of a job.
    """
    from croupier.apps.cron.listing import print_history

    print_history(file_or_name, job, count, state, as_json=as_json)
