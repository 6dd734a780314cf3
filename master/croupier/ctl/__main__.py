"""The `croupier` command line: flags and help; the work is in the modules beside this one.

Rule: what a command needs is imported within it, so that `--help` stays fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from croupier.ctl.target import LOCAL, MasterFlag
from croupier.model.durations import parse_duration
from croupier.net.address import MASTER_HTTP_PORT, MASTER_PORT
from croupier.process.cli import make_app, read_by, run_app

INTERRUPTED = 130
BROKEN_PIPE = 141
# Commands that have commands of their own, such as `weights set`.
FAMILIES = frozenset({"weights", "quota", "agent", "framework"})

JsonFlag = Annotated[
    bool, Parameter(name="--json", negative="", help="Print a JSON list for programs.")
]
JsonObjectFlag = Annotated[
    bool, Parameter(name="--json", negative="", help="Print JSON for programs.")
]
TimeoutFlag = Annotated[float | None, read_by(parse_duration, name="--timeout")]
WaitFlag = Annotated[float | None, read_by(parse_duration, name="--wait-for-resources")]
GraceFlag = Annotated[float | None, read_by(parse_duration, name="--grace")]


# The environment of a task names its ids by CROUPIER_..., which are not meant as flags.
app = make_app(
    "croupier",
    "Look at and use a Croupier cluster; `croupier local` starts one on this machine.\n\n"
    "--master HOST:PORT[,...], before or after the command, or CROUPIER_MASTER in the"
    " environment says which; 127.0.0.1:5050 if neither does.\n\n"
    "Exit codes: 0 done; 1 refused by the master, or no master can be reached; 2 the command line"
    " is wrong; 130 Ctrl-C. run and drain have more: see their --help.",
    reads_environment=False,
)

app.command(
    "croupier.sim.cli:app",
    name="simulate",
    help="Run an experiment in virtual time, or golden vectors, against the real allocator.",
)
app.command(
    "croupier.sim.replay.cli:app",
    name="replay",
    help="Look back at what a master did, and at what would have been otherwise.",
)
app.command(
    "croupier.ctl.roles_cli:weights", name="weights", help="List or change the weights of roles."
)
app.command(
    "croupier.ctl.roles_cli:quota",
    name="quota",
    help="List or change what roles are guaranteed and limited to.",
)
app.command(
    "croupier.ctl.agents_cli:agent",
    name="agent",
    help="Show, drain, deactivate and reactivate an agent, or declare it gone.",
)
app.command(
    "croupier.ctl.frameworks_cli:framework", name="framework", help="Tear a framework down."
)
app.command(
    "croupier.ctl.agents_cli:drain",
    name="drain",
    help="End the tasks of an agent and offer it no more, until it is reactivated.\n\n"
    "The drain is the master's: it goes on if this command ends. Exits with 0; 1 if the master"
    " refuses or cannot be reached; 3 if --timeout is over, and 4 if somebody else ended the drain"
    " or the agent has left for good; 2 for a bad argument; 130 after Ctrl-C.",
)


@app.command
def agents(*, master: MasterFlag = LOCAL, as_json: JsonFlag = False) -> None:
    """List agents: what each has, uses and has on offer."""
    from croupier.ctl.listing import list_agents

    list_agents(master, as_json=as_json)


@app.command
def frameworks(*, master: MasterFlag = LOCAL, as_json: JsonFlag = False) -> None:
    """List frameworks: their share of the cluster, and what they want."""
    from croupier.ctl.listing import list_frameworks

    list_frameworks(master, as_json=as_json)


@app.command
def tasks(
    *,
    framework: str = "",
    commands: Annotated[bool, Parameter(negative="")] = False,
    master: MasterFlag = LOCAL,
    as_json: JsonFlag = False,
) -> None:
    """List tasks that run or have ended lately.

    Parameters
    ----------
    framework
        Only those of the framework of this id, or of this name if only one is called that.
    commands
        Show what each task runs, too. Without this flag `command`, `shell` and `labels` are null
        in the JSON list.
    """
    from croupier.ctl.listing import list_tasks

    list_tasks(master, framework_id=framework, with_commands=commands, as_json=as_json)


@app.command
def offers(*, master: MasterFlag = LOCAL, as_json: JsonFlag = False) -> None:
    """List outstanding offers."""
    from croupier.ctl.listing import list_offers

    list_offers(master, as_json=as_json)


@app.command
def roles(*, master: MasterFlag = LOCAL, as_json: JsonFlag = False) -> None:
    """List roles as a tree: their weights, shares, guarantees and limits."""
    from croupier.ctl.role_listing import list_roles

    list_roles(master, as_json=as_json)


@app.command
def why(
    framework: str,
    /,
    *,
    agent: str = "",
    master: MasterFlag = LOCAL,
    as_json: JsonObjectFlag = False,
) -> None:
    """Tell why a framework has no more than it has, and what can be done about it.

    Parameters
    ----------
    framework
        Its id, or its name if only one is called that.
    agent
        Id or hostname of an agent: why it is not dealt more of that one, right now.
    """
    from croupier.ctl.why import explain

    explain(master, framework, agent, as_json=as_json)


@app.command
def kill(
    task_id: str,
    /,
    *,
    framework: str = "",
    grace: GraceFlag = None,
    master: MasterFlag = LOCAL,
) -> None:
    """Kill a task.

    Parameters
    ----------
    task_id
        As `croupier tasks` shows it.
    framework
        Id of the task's framework; needed if several have a task of that id.
    grace
        How long the task has between SIGTERM and SIGKILL, such as 10s; its own grace if not given.
    """
    from croupier.ctl.killing import kill_task

    kill_task(master, task_id, framework, grace)


@app.command
def run(
    *command: str,
    cpus: str = "1",
    mem: str = "128MB",
    disk: str = "0",
    gpus: str = "0",
    role: str = "*",
    count: Annotated[int, Parameter(name=["--count", "-n"])] = 1,
    env: Annotated[list[str] | None, Parameter(negative="")] = None,
    shell: Annotated[bool, Parameter(negative="")] = False,
    name: str = "",
    user: str = "",
    timeout: TimeoutFlag = None,
    wait_for_resources: WaitFlag = None,
    master: MasterFlag = LOCAL,
) -> int:
    """Run a command on the cluster, with its output here: croupier run -- CMD...

    The command has nothing on its standard input.
    Exits with the command's exit code, or 128 + N if signal N ended it; 127 if the program is not
    found and 126 if it cannot be run on the agent; of several tasks, with the first that is not
    0; 124 if --timeout or --wait-for-resources is over. Ctrl-C ends the tasks.

    Parameters
    ----------
    command
        The command and its arguments, after --.
    cpus
        For each task; may be a fraction, such as 0.1.
    mem
        For each task, such as 512MB.
    disk
        For each task, such as 1GB.
    gpus
        For each task; whole ones.
    role
        Whose share of the cluster it is charged to.
    count
        How many tasks run the command; each line of output then begins with the task's [number].
    env
        NAME=VALUE for the command's environment; may be repeated.
    shell
        Run the words, joined by spaces, by sh -c.
    name
        For people; the command itself if not given.
    user
        The account to run as; needs agents that run as root.
    timeout
        End the tasks if they are not done after this, such as 10m; without it there is no limit.
    wait_for_resources
        Give up, and end the tasks, if tasks wait for resources or for the master and none can be
        started for this time, such as 5m; without it there is no limit.
    """
    from croupier.ctl.run.command import run_job
    from croupier.ctl.run.job import Job, make_unit, parse_environment
    from croupier.ctl.run.limits import Limits

    job = Job(
        words=command,
        unit=make_unit(cpus, mem, disk, gpus),
        is_shell=shell,
        count=count,
        role=role,
        name=name,
        user=user,
        environment=parse_environment(env or ()),
    )
    return run_job(job, master, Limits(timeout, wait_for_resources))


@app.command
def local(
    *master_flags: str,
    agents: int = 3,
    cpus: str | None = None,
    mem: str | None = None,
    disk: str | None = None,
    master_port: int = MASTER_PORT,
    http_port: int = MASTER_HTTP_PORT,
    work_dir: Path | None = None,
    role_weights: str = "",
    policy: str = "",
    verbose: bool = False,
) -> int:
    """Run a master and agents on this machine until Ctrl-C.

    A daemon that ends is started again, on the same ports and files.

    Parameters
    ----------
    master_flags
        After --, flags of croupier-master's own, such as -- --offer-lease 30.
    agents
        How many agents.
    cpus
        Of each agent; an even part of this machine's if not given, at least 1.
    mem
        Of each agent, such as 4GB; an even part if not given.
    disk
        Of each agent, such as 10GB; an even part of what is free if not given.
    master_port
        Where the master listens on 127.0.0.1; 0 for any free port.
    http_port
        Where the master serves metrics and health; 0 for any free port.
    work_dir
        Where state, logs and output are kept; if not given a directory that is removed at the
        end, but for the logs if a daemon has failed.
    role_weights
        Such as ads=2,web=1.
    policy
        Whose turn it is: drf, yarn-drf, fifo, asset, single-resource, slots or random; drf if
        not given.
    verbose
        Show the log lines of all daemons.
    """
    from croupier.ctl.local.command import Place, run_local
    from croupier.ctl.local.plan import make_wishes

    for_master = (*(("--policy", policy) if policy else ()), *master_flags)
    return run_local(
        make_wishes(agents, cpus, mem, disk, role_weights, for_master),
        Place(master_port, http_port, work_dir, verbose),
    )


def master_after_command(argv: Sequence[str]) -> list[str]:
    """`--master M COMMAND ...` as `COMMAND --master M ...`: the flag may stand on either side."""
    words = list(argv)
    if words[:1] == ["--master"]:
        flag, rest = words[:2], words[2:]
    elif words and words[0].startswith("--master="):
        flag, rest = words[:1], words[1:]
    else:
        return words
    has_two_words = len(rest) > 1 and rest[0] in FAMILIES and not rest[1].startswith("-")
    command = 2 if has_two_words else 1
    return [*rest[:command], *flag, *rest[command:]] if rest else words


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv`, or the process's own, asks for; the exit code."""
    try:
        code = run_app(app, master_after_command(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough. Python would complain once more at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return code


if __name__ == "__main__":
    sys.exit(main())
