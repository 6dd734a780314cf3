"""Steps of commands that change the cluster: preview the consequences, confirm, call, print.

Rule: before a change that cannot be undone, the command shows the consequences and asks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message

from croupier.api.affected import affected, affected_task, is_live
from croupier.api.http_pb2 import Affected
from croupier.api.objects import as_object
from croupier.cli.connection import Master, objects, run
from croupier.cli.flags import Change, Target
from croupier.cli.table import Table, print_table
from croupier.cli.terminal import View, many, named, print_lines
from croupier.ctl.lists import all_of, find_agent, find_framework
from croupier.ctl.views import agent as agents
from croupier.ctl.views import framework as frameworks
from croupier.model.errors import Conflict, InvalidRequest
from croupier.net.unary import NoSuchCall

# Before the lines of a dry run.
UNCHANGED: Final = "nothing was changed; this would change:"


@dataclass(frozen=True, slots=True)
class Preview:
    """The consequences of an operation on one object, for programs and for people."""

    object_id: str
    view: View
    lines: Sequence[str]


MakePreview = Callable[[Master], Coroutine[Any, Any, Preview]]


def ask(target: Target, method: str, request: Message) -> Any:
    """Make one call, and return its response; raises as `run`."""
    return run(target, lambda master: master.ask(getattr(master.service, method), request))


def print_result(view: View | Sequence[View], *lines: str, as_json: bool) -> None:
    """Print `view` as JSON, or `lines`."""
    if as_json:
        print(json.dumps(view, indent=2))
    else:
        print_lines(*lines)


def print_objects(
    table: Table, views: Sequence[View], *, as_json: bool, wide: bool = False
) -> None:
    """Print a list as JSON, or as a table."""
    if as_json:
        print(json.dumps(views, indent=2))
    else:
        print_table(table, views, sys.stdout, wide=wide)


def print_preview(target: Target, preview: MakePreview, *, as_json: bool) -> Preview:
    """Print the consequences of an operation, and return them; raises CroupierError if unknown."""
    found = run(target, preview)
    print_result({"dry_run": True, **found.view}, *found.lines, as_json=as_json)
    return found


def confirm(named: str, preview: MakePreview, change: Change, *, yes: bool) -> str | None:
    """Return the name or id of the object to operate on; None after a dry run.

    Without `yes`, print the consequences and ask. Raises Conflict if the answer is no,
    InvalidRequest without a terminal, and CroupierError if the consequences are unknown.
    """
    if change.dry_run:
        print_preview(change.master, preview, as_json=change.as_json)
        return None
    if yes:
        return named
    found = print_preview(change.master, preview, as_json=False)
    if not sys.stdin.isatty():
        raise InvalidRequest("cannot ask for confirmation: stdin is not a terminal; give --yes")
    print("type yes to continue: ", end="", flush=True)
    if sys.stdin.readline().strip().lower() != "yes":
        raise Conflict("nothing was changed")
    # The user has confirmed this object, not the one that has its name by now.
    return found.object_id


@dataclass(frozen=True, slots=True)
class AgentUse:
    """An agent with its live tasks."""

    agent: View
    tasks: list[View]
    affected: Affected

    def preview(self, lines: Iterator[str], **more: Any) -> Preview:
        """Return the consequences of an operation on the agent, with `lines` for people.

        `more` are other parts of the view.
        """
        view = {"agent": self.agent, "tasks": _without("agent_id", self.tasks), **more}
        return Preview(self.agent["agent_id"], view, list(lines))


async def agent_use(master: Master, named: str) -> AgentUse:
    """Return the use of the agent of this id or hostname; raises as `find_agent`."""
    agent = await find_agent(master, named)
    return AgentUse(agent, *await _affected(master, agent=agent["agent_id"]))


async def _affected(master: Master, **fields: Any) -> tuple[list[View], Affected]:
    """Return the live tasks of a list, and what ends with them."""
    tasks = [each async for each in objects(master, "tasks", **fields) if is_live(each)]
    names = {
        each.framework.framework_id: each.framework.name
        async for each in objects(master, "frameworks")
    }
    hosts = {each.agent.agent_id: each.agent.hostname async for each in objects(master, "agents")}
    return [as_object(affected_task(each)) for each in tasks], affected(tasks, names, hosts)


async def _holds(master: Master, key: str, object_id: str) -> list[View]:
    """Return the holds and volumes of a framework or an agent, by the name of its id."""
    with suppress(NoSuchCall):  # masters of releases before 1.1 have no holds
        found = await all_of(master, "holds", text=object_id)
        return [each for each in found if each[key] == object_id and not each["orphan"]]
    return []


def _hold_lines(holds: list[View], end: str) -> Iterator[str]:
    """Yield how many holds and volumes end; `end` says what becomes of a volume's files."""
    volumes = sum(each["volume"] for each in holds)
    others = len(holds) - volumes
    if others:
        yield f"  its {many(others, 'hold')} {'ends' if others == 1 else 'end'}"
    if volumes:
        files = f"the files in {'it' if volumes == 1 else 'them'}"
        yield f"  its {many(volumes, 'volume')} and {files} are {end}"


def _without(key: str, tasks: list[View]) -> list[View]:
    return [{name: value for name, value in task.items() if name != key} for task in tasks]


async def drain_preview(master: Master, named: str, grace_ms: int | None) -> Preview:
    """Return the consequences of draining an agent; raises as `agent_use`."""
    use = await agent_use(master, named)

    def lines() -> Iterator[str]:
        grace = "its own grace" if grace_ms is None else f"at most {grace_ms / 1000:g} s"
        number = many(len(use.tasks), "task")
        yield f"nothing was changed; {agents.name_of(use.agent)} would get no offers, and {number}"
        yield f"would be killed, each with {grace}:" if use.tasks else "would be killed"
        yield from agents.task_count_lines(use.affected)

    return use.preview(lines())


async def gone_preview(master: Master, named: str) -> Preview:
    """Return the consequences of declaring an agent gone; raises as `agent_use`."""
    use = await agent_use(master, named)
    holds = await _holds(master, "agent_id", use.agent["agent_id"])

    def lines() -> Iterator[str]:
        name = agents.name_of(use.agent)
        yield f"{name} is {agents.state_text(use.agent)}; if it is declared gone, permanently:"
        yield "  it never returns under this id; if it still runs, it ends its tasks"
        yield from _hold_lines(holds, "lost")
        if not use.tasks:
            yield "  it has no live tasks that the master knows"
            return
        are = "is" if len(use.tasks) == 1 else "are"
        yield f"  {many(len(use.tasks), 'task')} {are} lost, and may be started elsewhere:"
        for line in agents.task_count_lines(use.affected):
            yield f"  {line}"

    return use.preview(lines(), holds=holds)


async def teardown_preview(master: Master, named: str) -> Preview:
    """Return the consequences of tearing a framework down; raises as `find_framework`."""
    framework = await find_framework(master, named)
    framework_id = framework["framework_id"]
    tasks, lost = await _affected(master, framework_id=framework_id)
    holds = await _holds(master, "framework_id", framework_id)
    view = {"framework": framework, "tasks": _without("framework_id", tasks), "holds": holds}
    return Preview(framework_id, view, list(_teardown_lines(framework, lost, holds)))


def _teardown_lines(framework: View, lost: Affected, holds: list[View]) -> Iterator[str]:
    name = named(framework["name"], framework["framework_id"])
    yield f"framework {name} is {frameworks.state_text(framework)}; if it is torn down:"
    yield "  no program can subscribe under its id ever again"
    yield from _hold_lines(holds, "deleted")
    if not lost.tasks:
        yield "  it has no live tasks"
        return
    used = framework["used"]["text"] or "nothing"
    are = "is" if lost.tasks == 1 else "are"
    placed = ":" if lost.agents else ""
    yield f"  {many(lost.tasks, 'task')} {are} killed; it holds {used}{placed}"
    for each in lost.agents:
        agent = named(each.hostname, each.agent_id)
        yield f"    {many(each.tasks, 'task')} on agent {agent}"
