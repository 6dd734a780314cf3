"""`croupier logs`, `croupier files` and `croupier cp`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from croupier.ctl.app import app
from croupier.ctl.flags import LOCAL, JsonFlag, MasterFlag

TaskArgument = Annotated[str, Parameter(help="Task id, as `croupier tasks` shows it.")]


@app.command
def logs(
    task_id: TaskArgument,
    /,
    *,
    follow: Annotated[bool, Parameter(name=("--follow", "-f"), negative="")] = False,
    stderr: Annotated[bool, Parameter(negative="")] = False,
    tail: Annotated[int | None, Parameter(name=("--tail", "-n"))] = None,
    raw: Annotated[bool, Parameter(negative="")] = False,
    framework: str = "",
    agent: str = "",
    master: MasterFlag = LOCAL,
) -> None:
    """Print the output of a task, as long as its agent keeps it, also after its end.

    A pipe or a file gets every byte as the task wrote it. On a terminal, control characters are
    escaped.

    Parameters
    ----------
    follow
        Go on with what the task prints until it has ended, also after its agent or the master was
        restarted.
    stderr
        Print its standard error instead of its standard output.
    tail
        Only this number of last lines.
    raw
        Print control characters to a terminal as they are: the task may then control it.
    framework
        Id of the task's framework; needed if several frameworks have a task of that id, unless
        only one of these still runs.
    agent
        Id of the agent that ran the task; needed if the master has forgotten the task.
    """
    from croupier.ctl.task_files import Part, TaskName, print_output

    part = Part("stderr" if stderr else "stdout", follow, tail)
    print_output(master, TaskName(task_id, framework, agent), part, raw=raw)


@app.command
def files(
    task_id: TaskArgument,
    path: Annotated[str, Parameter(help="A directory below the sandbox.")] = "",
    /,
    *,
    framework: str = "",
    agent: str = "",
    master: MasterFlag = LOCAL,
    as_json: JsonFlag = False,
) -> None:
    """List the files in the sandbox of a task. `croupier cp` copies one.

    Parameters
    ----------
    framework
        Id of the task's framework, as for `croupier logs`.
    agent
        Id of the agent that ran the task, as for `croupier logs`.
    """
    import json

    from croupier.ctl.task_files import TaskName, list_files
    from croupier.ctl.terminal import print_lines
    from croupier.ctl.views.file import file_lines

    found = list_files(master, TaskName(task_id, framework, agent), path)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        print_lines(*file_lines(found))


@app.command
def cp(
    source: Annotated[str, Parameter(help="TASK:PATH, a file below the task's sandbox.")],
    local: Annotated[
        str,
        Parameter(help="File or directory here; - is standard output.", allow_leading_hyphen=True),
    ],
    /,
    *,
    framework: str = "",
    agent: str = "",
    master: MasterFlag = LOCAL,
) -> None:
    """Copy a file from the sandbox of a task.

    Parameters
    ----------
    framework
        Id of the task's framework, as for `croupier logs`.
    agent
        Id of the agent that ran the task, as for `croupier logs`.
    """
    from croupier.ctl.task_files import Part, TaskName, copy_file, print_output
    from croupier.ctl.terminal import print_lines
    from croupier.model.errors import InvalidRequest

    task_id, colon, path = source.partition(":")
    if not colon:
        raise InvalidRequest(f"{source[:80]!r} is not TASK:PATH, such as 7f3c:logs/server.log")
    task = TaskName(task_id, framework, agent)
    if local == "-":
        print_output(master, task, Part(path), raw=False)
        return
    try:
        written = copy_file(master, task, path, local)
    except OSError as error:
        raise InvalidRequest(f"cannot write {local}: {error.strerror}") from None
    print_lines(f"wrote {written}")
