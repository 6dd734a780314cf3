"""Commands that list agents, frameworks, tasks, offers and roles."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from croupier.ctl.app import app
from croupier.ctl.flags import LOCAL, JsonListFlag, MasterFlag


@app.command
def agents(*, master: MasterFlag = LOCAL, as_json: JsonListFlag = False) -> None:
    """List agents: state, tasks, and resources used, offered and in total."""
    from croupier.ctl.lists import AGENTS, print_list
    from croupier.ctl.views import agent

    print_list(master, AGENTS, agent.AGENTS, as_json=as_json)


@app.command
def frameworks(*, master: MasterFlag = LOCAL, as_json: JsonListFlag = False) -> None:
    """List frameworks: state, share of the cluster, and demand."""
    from croupier.ctl.lists import FRAMEWORKS, print_list
    from croupier.ctl.views import framework

    print_list(master, FRAMEWORKS, framework.FRAMEWORKS, as_json=as_json)


@app.command
def tasks(
    *,
    framework: str = "",
    commands: Annotated[bool, Parameter(negative="")] = False,
    master: MasterFlag = LOCAL,
    as_json: JsonListFlag = False,
) -> None:
    """List tasks that run or have ended lately.

    Parameters
    ----------
    framework
        Only the tasks of the framework of this id, or of this name if only one has it.
    commands
        Show the command of each task. Without this flag `command`, `shell` and `labels` are null
        in the JSON list.
    """
    from croupier.ctl.lists import list_tasks

    list_tasks(master, framework, with_commands=commands, as_json=as_json)


@app.command
def offers(*, master: MasterFlag = LOCAL, as_json: JsonListFlag = False) -> None:
    """List outstanding offers."""
    from croupier.ctl.lists import OFFERS, print_list
    from croupier.ctl.views import task

    print_list(master, OFFERS, task.OFFERS, as_json=as_json)


@app.command
def roles(*, master: MasterFlag = LOCAL, as_json: JsonListFlag = False) -> None:
    """List roles as a tree: weights, shares, guarantees and limits."""
    from croupier.ctl.lists import ROLES, print_list
    from croupier.ctl.views import role

    print_list(master, ROLES, role.ROLES, as_json=as_json)
