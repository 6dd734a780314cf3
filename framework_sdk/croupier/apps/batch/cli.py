"""`croupier batch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from croupier.cli.flags import LOCAL, MasterFlag
from croupier.model.durations import parse_duration
from croupier.process.cli import read_by


def batch(
    file: Path,
    /,
    *,
    check: Annotated[bool, Parameter(name=["--check", "--dry-run"], negative="")] = False,
    resume: Annotated[bool, Parameter(negative="")] = False,
    retry_failed: Annotated[bool, Parameter(negative="")] = False,
    restart: Annotated[bool, Parameter(negative="")] = False,
    state: Path | None = None,
    keep: Annotated[float, read_by(parse_duration, show_default="1h".format)] = 3600.0,
    master: MasterFlag = LOCAL,
) -> int:
    """Run the tasks of a job file on the cluster, such as: croupier batch jobs.toml.

    The file has tasks, arrays of tasks, dependencies, retries and limits: see docs/batch.md.
    Mistakes in it are reported before anything runs.

    The state of the run is saved. After a kill or a crash, croupier batch jobs.toml --resume
    continues: it takes over running tasks, and does not run ended ones again. Ctrl-C ends the
    running tasks, which --resume runs again; a second Ctrl-C leaves them running.

    Exit codes: 0 all tasks succeeded; 1 some failed or were skipped, the master refused, or another
    copy runs this job; 2 the file or the command line is wrong; 128 + N if signal N ended it.

    Args:
        file: The job file, in TOML (.toml) or YAML (.yaml, .yml).
        check: Run nothing: check the file, and print the plan.
        resume: Continue the interrupted run of this file; start one if there is none.
        retry_failed: With --resume: run failed tasks again, and those that were skipped for them.
        restart: Discard the interrupted run of this file, end its tasks, and start again.
        state: State file of the run. Default: one for each job file, below
            $XDG_STATE_HOME/croupier/batch or ~/.local/state/croupier/batch.
        keep: How long the cluster keeps the tasks of a batch that has crashed or left them running.
        master: Masters of the cluster.
    """
    from croupier.apps.batch.batch_run import BatchCommand
    from croupier.apps.batch.display import plan_lines
    from croupier.apps.batch.job import batch_of
    from croupier.apps.batch.plan import JobPlan
    from croupier.apps.batch.state import default_path, opened
    from croupier.apps.controller.process import run_application
    from croupier.apps.job_file.section import read_job_file
    from croupier.cli.terminal import print_lines
    from croupier.model.errors import InvalidRequest

    if retry_failed and not resume:
        raise InvalidRequest("--retry-failed needs --resume")
    if resume and restart:
        raise InvalidRequest("give --resume or --restart, not both")
    job = batch_of(read_job_file(file), file.stem)
    try:
        plan = JobPlan(job)
    except InvalidRequest as error:
        raise InvalidRequest(f"{file}: {error}") from None
    if check:
        print_lines(*plan_lines(plan))
        return 0
    with opened(state or default_path(file)) as stored:
        command = BatchCommand(
            plan,
            stored,
            master,
            resume=resume,
            restart=restart,
            retry_failed=retry_failed,
            keep_s=keep,
        )
        return run_application(master, command.run)
