"""`croupier hold`: hold resources of an agent for a role, or release a hold."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from cyclopts import Parameter

from croupier.api.objects import as_object
from croupier.cli.connection import Master
from croupier.cli.flags import CHANGE, LOCAL, AgentName, Change, JsonFlag, MasterFlag, YesFlag
from croupier.cli.terminal import View, many
from croupier.ctl.app import family
from croupier.ctl.lists import all_of
from croupier.ctl.operation import Preview, ask, confirm, print_result
from croupier.ctl.views.hold import hold_lines
from croupier.model.durations import parse_duration
from croupier.model.errors import NotFound
from croupier.model.resources import Resources
from croupier.process.cli import read_by
from croupier.v1 import operator_pb2 as pb
from croupier.wire.resources import resources_to_wire

hold = family("hold", "`croupier holds` lists holds.")


@hold.command(name="create")
def create(
    agent: AgentName,
    /,
    *,
    role: str,
    resources: Annotated[Resources, read_by(Resources.parse)],
    ttl: Annotated[float | None, read_by(parse_duration)] = None,
    hold_id: Annotated[str, Parameter(name="--id")] = "",
    volume: Annotated[bool, Parameter(negative="")] = False,
    master: MasterFlag = LOCAL,
    as_json: JsonFlag = False,
) -> None:
    """Hold free resources of an agent for a role and the roles below it.

    The role is charged for them as long as the hold lives, used or not. They are offered only
    to that role and those below it.

    Args:
        role: The role.
        resources: The resources, such as "cpus:2;mem:4GB". They have to be free on the agent.
        ttl: The time until the hold ends, such as 2h; without it, the hold ends when it is
            released.
        hold_id: The id of the hold; without it, the master makes one.
        volume: Make a volume: a directory that tasks name, which stays until it is released.
    """
    request = pb.CreateHoldRequest(
        agent=agent,
        role=role,
        resources=resources_to_wire(resources),
        ttl_ms=0 if ttl is None else max(1, round(ttl * 1000)),
        hold_id=hold_id,
        volume=volume,
    )
    view = as_object(ask(master, "CreateHold", request))["hold"]
    print_result(view, *hold_lines(view), as_json=as_json)


@hold.command(name="release")
def release(hold_id: str, /, *, yes: YesFlag = False, change: Change = CHANGE) -> None:
    """End a hold, whoever made it.

    Its unused part is offered to all at once. Tasks in it run on, charged as any other. Of a
    volume, its agent deletes the files, at once or when it is back; while tasks use it, the release
    is refused.

    Args:
        hold_id: The id of the hold.
    """
    confirmed = confirm(hold_id, partial(_preview, hold_id=hold_id), change, yes=yes)
    if confirmed is not None:
        request = pb.ReleaseHoldRequest(hold_id=confirmed)
        view = as_object(ask(change.master, "ReleaseHold", request))["hold"]
        print_result(view, _released_text(view), as_json=change.as_json)


def _released_text(view: View) -> str:
    """Return what was released, and what becomes of its tasks or files."""
    if view["volume"]:
        end = "its agent deletes its files as soon as it is connected"
        return f"volume {view['hold_id']} is released; {end}"
    runs = "runs" if view["tasks"] == 1 else "run"
    left = f"; {many(view['tasks'], 'task')} in it {runs} on" if view["tasks"] else ""
    return f"hold {view['hold_id']} is released{left}"


async def _preview(master: Master, hold_id: str) -> Preview:
    """Return the consequences of releasing a hold; raises NotFound if there is none."""
    for view in await all_of(master, "holds", text=hold_id):
        if view["hold_id"] == hold_id:
            files, rest = "its agent deletes its files", "what is unused is offered to all"
            end = files if view["volume"] else rest
            lines = [*hold_lines(view), f"  if it is released, {end}"]
            return Preview(hold_id, {"hold": view}, lines)
    raise NotFound(f"no hold {hold_id!r}; croupier holds lists them")
