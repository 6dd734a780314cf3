"""Commands that list agents, frameworks, tasks, offers and roles."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from croupier.ctl.app import app
from croupier.ctl.flags import LOCAL, JsonListFlag, MasterFlag


def _add(name: str, text: str) -> None:
    @app.command(name=name, help=text)
    def listing(*, master: MasterFlag = LOCAL, as_json: JsonListFlag = False) -> None:
        from croupier.ctl.lists import KINDS, print_list

        print_list(master, KINDS[name], as_json=as_json)


_add("agents", "List agents: state, tasks, and resources used, offered and in total.")
_add("frameworks", "List frameworks: state, share of the cluster, and demand.")
_add("offers", "List outstanding offers.")
_add("roles", "List roles as a tree: weights, shares, guarantees and limits.")


@app.command
def tasks(
    *,
    framework: str = "",
    commands: Annotated[bool, Parameter(negative="")] = False,
    master: MasterFlag = LOCAL,
    as_json: JsonListFlag = False,
) -> None:
    """List tasks that run or have ended recently.

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
