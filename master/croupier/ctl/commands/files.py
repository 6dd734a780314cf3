"""`croupier logs`, `croupier files` and `croupier cp`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from croupier.api.times import time_text
from croupier.cli.flags import LOCAL, JsonFlag, MasterFlag, TaskAgentFlag, TaskFrameworkFlag
from croupier.cli.terminal import View, print_lines
from croupier.ctl.app import app
from croupier.ctl.operation import print_result
from croupier.ctl.task_copies import copy_directory, copy_file
from croupier.ctl.task_output import OutputPart, TaskArgument, TaskName, list_files, print_output
from croupier.model.errors import InvalidRequest
from croupier.model.printable import printable
from croupier.process.durable_files import os_errors_as

_MARKS = {"directory": "/", "link": "@", "other": "?"}


@app.command
def logs(
    task_id: TaskArgument,
    /,
    *,
    follow: Annotated[bool, Parameter(name=("--follow", "-f"), negative="")] = False,
    stderr: Annotated[bool, Parameter(negative="")] = False,
    tail: Annotated[int | None, Parameter(name=("--tail", "-n"))] = None,
    raw: Annotated[bool, Parameter(negative="")] = False,
    framework: TaskFrameworkFlag = "",
    agent: TaskAgentFlag = "",
    master: MasterFlag = LOCAL,
) -> None:
    """Print the output of a task, also after its end, as long as its agent keeps it.

    A pipe or a file gets every byte as the task wrote it. On a terminal, control characters are
    escaped.

    Args:
        follow: Keep printing until the task has ended, also across restarts of its agent or the
            master.
        stderr: Print its standard error instead of its standard output.
        tail: Print only this number of last lines.
        raw: Print control characters to a terminal as they are: the task may then control it.
    """
    part = OutputPart("stderr" if stderr else "stdout", follow, tail)
    print_output(master, TaskName(task_id, framework, agent), part, raw=raw)


@app.command
def files(
    task_id: TaskArgument,
    path: Annotated[str, Parameter(help="A directory below the sandbox.")] = "",
    /,
    *,
    framework: TaskFrameworkFlag = "",
    agent: TaskAgentFlag = "",
    master: MasterFlag = LOCAL,
    as_json: JsonFlag = False,
) -> None:
    """List the files in the sandbox of a task. `croupier cp` copies them."""
    found = list_files(master, TaskName(task_id, framework, agent), path)
    print_result(found, *file_lines(found), as_json=as_json)


@app.command
def cp(
    source: Annotated[str, Parameter(help="TASK:PATH, a file below the task's sandbox.")],
    local: Annotated[
        str,
        Parameter(help="Local file or directory; - is standard output.", allow_leading_hyphen=True),
    ],
    /,
    *,
    recursive: Annotated[bool, Parameter(name=("--recursive", "-r"), negative="")] = False,
    framework: TaskFrameworkFlag = "",
    agent: TaskAgentFlag = "",
    master: MasterFlag = LOCAL,
) -> int:
    """Copy a file or a directory from the sandbox of a task.

    Existing local files are replaced, each when its copy is complete.

    Exit codes: 0 everything was copied; 1 something could not be copied; 2 wrong argument.

    Args:
        recursive: Copy the directory PATH and everything below it except links and special files;
            TASK: copies the whole sandbox. If the local directory exists, the copy is placed in it.
    """
    task_id, colon, path = source.partition(":")
    if not colon:
        raise InvalidRequest(f"{source[:80]!r} is not TASK:PATH, such as 7f3c:logs/server.log")
    task = TaskName(task_id, framework, agent)
    if local == "-" and recursive:
        raise InvalidRequest("standard output takes one file: name a directory, or omit -r")
    if local == "-":
        print_output(master, task, OutputPart(path), raw=False)
        return 0
    with os_errors_as(InvalidRequest, f"cannot write {local}"):
        if recursive:
            return copy_directory(master, task, path, local)
        print_lines(f"wrote {copy_file(master, task, path, local)}")
    return 0


def file_lines(found: View) -> list[str]:
    """Return a line for each entry: size, last write, and name with a mark of its kind."""
    entries = found["items"]
    if not entries:
        return ["no files"]
    width = max(4, *(len(str(each["size"])) for each in entries))
    lines = [f"{'SIZE':>{width}}  {'MODIFIED':20}  NAME"]
    for each in entries:
        size = str(each["size"]) if each["kind"] == "file" else "-"
        name = printable(each["name"]) + _MARKS.get(each["kind"], "")
        lines.append(f"{size:>{width}}  {time_text(each['modified_ms']) or '?':20}  {name}")
    if found["cut"]:
        lines.append("... and more files, which are not listed")
    return lines
