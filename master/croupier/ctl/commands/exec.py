"""`croupier exec`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from croupier.cli.flags import LOCAL, MasterFlag, TaskFrameworkFlag
from croupier.ctl.app import app
from croupier.ctl.commands.files import TaskArgument


@app.command(name="exec")
def exec_(
    task_id: TaskArgument,
    /,
    *command: str,
    stdin: Annotated[bool, Parameter(name=("--stdin", "-i"), negative="")] = False,
    tty: Annotated[bool, Parameter(name=("--tty", "-t"), negative="")] = False,
    framework: TaskFrameworkFlag = "",
    master: MasterFlag = LOCAL,
) -> int:
    """Run a command beside a task: croupier exec [-it] TASK -- CMD...

    The command has the task's sandbox as its directory, and its environment, user, limits and
    isolation: it can do what the task can. It ends with the task, with this command, with the
    agent, and when another master leads. Ctrl-C ends it; with -it Ctrl-C goes to the command.

    Exit codes: the command's own, or 128 + N if signal N ended it; 127 if the agent does not find
    the program; 126 if it cannot run it; 125 if the connection, the agent or the permission was
    lost while it ran; 1 if it was not started.

    Parameters
    ----------
    command
        The command and its arguments, after --.
    stdin
        Pass standard input to the command; without it, its input is empty.
    tty
        Give the command a terminal, as large as the one here. With -i, each key goes to it at
        once; its standard error comes with its output.
    """
    from croupier.ctl.exec.command import exec_in_task
    from croupier.ctl.task_reader import TaskName

    task = TaskName(task_id, framework)
    return exec_in_task(master, task, command, has_input=stdin, has_terminal=tty)
