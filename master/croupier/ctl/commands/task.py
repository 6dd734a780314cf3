"""`croupier task`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from croupier.cli.flags import (
    LOCAL,
    AgentName,
    FrameworkName,
    JsonFlag,
    MasterFlag,
    RoleName,
    TaskFrameworkFlag,
)
from croupier.ctl.app import family

task = family("task", "Show a task. `croupier tasks` lists them.")
describe = family(
    "describe",
    "Show all that is known about one object: state, amounts, tasks, causes, recent events.",
)


@describe.command(name="agent")
def describe_agent(
    name: AgentName, /, *, master: MasterFlag = LOCAL, as_json: JsonFlag = False
) -> None:
    """Show all about an agent: state, resources, attributes, drain, tasks, recent events."""
    from croupier.ctl import describe

    describe.describe_agent(master, name, as_json=as_json)


@describe.command(name="framework")
def describe_framework(
    name: FrameworkName, /, *, master: MasterFlag = LOCAL, as_json: JsonFlag = False
) -> None:
    """Show all about a framework: share, demand, tasks, why it gets no more, recent events."""
    from croupier.ctl import describe

    describe.describe_framework(master, name, as_json=as_json)


@describe.command(name="role")
def describe_role(
    name: RoleName, /, *, master: MasterFlag = LOCAL, as_json: JsonFlag = False
) -> None:
    """Show all about a role: share, guarantee, limit, frameworks, tasks, recent events."""
    from croupier.ctl import describe

    describe.describe_role(master, name, as_json=as_json)


@describe.command(name="task")
@task.command(name="show")
def show(
    task_id: Annotated[str, Parameter(help="Task id, as `croupier tasks` shows it.")],
    /,
    *,
    framework: TaskFrameworkFlag = "",
    master: MasterFlag = LOCAL,
    as_json: JsonFlag = False,
) -> None:
    """Show one task: state, command, resources, isolation, and its use beside its limits.

    Of a task that runs, the use is what its agent measures now; of a task that has ended, the use
    until its end. The master forgets ended tasks after a while.
    """
    from croupier.ctl.task_show import show_task

    show_task(master, task_id, framework, as_json=as_json)
