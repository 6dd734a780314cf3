"""`croupier kill`, `croupier task`, and `croupier describe`: all that is known about one object.

Rule: bounded. Of an object's tasks and frameworks only the first are fetched, and of its events
the latest among those that the master returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import aclosing
from typing import Any, Final

from croupier.api.objects import as_object
from croupier.cli.connection import Master, run
from croupier.cli.flags import (
    LOCAL,
    AgentName,
    FrameworkName,
    GraceFlag,
    JsonFlag,
    MasterFlag,
    RoleName,
    TaskFrameworkFlag,
)
from croupier.cli.table import terminal_width
from croupier.cli.terminal import View, named, print_lines
from croupier.ctl.app import app, family
from croupier.ctl.lists import all_of, find_agent, find_framework, first_page, id_of
from croupier.ctl.operation import print_result
from croupier.ctl.task_output import TaskArgument, TaskName, advising
from croupier.ctl.views.described import agent_page, event_section, framework_page, role_page
from croupier.ctl.views.task import is_live, task_lines
from croupier.model.errors import Conflict, CroupierError, NotFound
from croupier.model.ids import check_id
from croupier.model.task import TERMINAL, TaskState
from croupier.v1 import operator_pb2 as pb
from croupier.v1.task_pb2 import KillPolicy

MOST_ITEMS: Final = 10
MOST_EVENTS: Final = 8
# Events that are looked through.
EVENTS_SEARCHED: Final = 2_000
_LIVE: Final = sorted(state.value for state in TaskState if state not in TERMINAL)

task = family("task")
describe = family("describe")


@describe.command(name="agent")
def describe_agent(
    name: AgentName, /, *, master: MasterFlag = LOCAL, as_json: JsonFlag = False
) -> None:
    """Show the details of an agent: state, resources, attributes, drain, tasks, recent events."""

    async def fetch(leader: Master) -> View:
        agent_id = (await find_agent(leader, name))["agent_id"]
        agent = await _row(leader, "agents", "agent_id", agent_id)
        tasks = await first_page(leader, "tasks", MOST_ITEMS, agent=agent_id, states=_LIVE)
        events = await recent_events(leader, lambda each: each.agent_id == agent_id)
        return {"agent": agent, "tasks": tasks, "events": events}

    view = run(master, fetch)
    print_result(_public(view), *agent_page(view, terminal_width()), as_json=as_json)


@describe.command(name="framework")
def describe_framework(
    name: FrameworkName, /, *, master: MasterFlag = LOCAL, as_json: JsonFlag = False
) -> None:
    """Show the details of a framework: share, demand, tasks, causes of waiting, recent events."""

    async def fetch(leader: Master) -> View:
        framework_id = (await find_framework(leader, name))["framework_id"]
        framework = await _row(leader, "frameworks", "framework_id", framework_id)
        request = pb.ExplainRequest(framework_id=framework_id)
        why = as_object(await leader.ask(leader.service.Explain, request))
        tasks = await first_page(
            leader, "tasks", MOST_ITEMS, framework_id=framework_id, states=_LIVE
        )
        events = await recent_events(leader, lambda each: each.framework_id == framework_id)
        return {"framework": framework, "why": why, "tasks": tasks, "events": events}

    view = run(master, fetch)
    print_result(_public(view), *framework_page(view, terminal_width()), as_json=as_json)


@describe.command(name="role")
def describe_role(
    name: RoleName, /, *, master: MasterFlag = LOCAL, as_json: JsonFlag = False
) -> None:
    """Show the details of a role: share, guarantee, limit, frameworks, tasks, recent events."""

    async def fetch(leader: Master) -> View:
        found = [each for each in await all_of(leader, "roles", text=name) if each["role"] == name]
        if not found:
            raise NotFound(
                f"no role {name!r} has frameworks or settings; croupier roles lists those that have"
            )
        below = [
            each
            for each in await all_of(leader, "frameworks", text=name)
            if any(is_within(own, name) for own in each["roles"])
        ]
        below.sort(key=lambda each: (-each["share_ppm"], each["framework_id"]))
        tasks = await first_page(leader, "tasks", MOST_ITEMS, role=name, states=_LIVE)
        events = await recent_events(leader, lambda each: is_within(each.role, name))
        return {
            "role": found[0],
            "frameworks": below[:MOST_ITEMS],
            "tasks": tasks,
            "events": events,
        }

    view = run(master, fetch)
    print_result(_public(view), *role_page(view, terminal_width()), as_json=as_json)


@describe.command(name="task")
@task.command(name="show")
def show(
    task_id: TaskArgument,
    /,
    *,
    framework: TaskFrameworkFlag = "",
    master: MasterFlag = LOCAL,
    as_json: JsonFlag = False,
) -> None:
    """Show one task: state, command, resources, isolation, and its use beside its limits.

    The use of a running task is what its agent measures now, and of an ended task the use until its
    end. The master forgets ended tasks after a while.
    """
    check_id("task", task_id)

    async def found(leader: Master) -> tuple[View, str]:
        task = await _find_task(leader, task_id, await id_of(leader, "framework", framework))
        own = (task["framework_id"], task_id)
        events = await recent_events(leader, lambda each: (each.framework_id, each.task_id) == own)
        view = {**task, "events": events}
        if not is_live(view) or view["state"] == TaskState.QUEUED.name or view["executor_id"]:
            return view, ""
        ids = {name: task[name] for name in ("framework_id", "task_id", "agent_id")}
        try:
            answer = await leader.ask(leader.service.GetTaskUse, pb.GetTaskUseRequest(**ids))
        except CroupierError as error:
            return view, str(error)
        use = as_object(answer)
        enforced = {name: value for name, value in use["limits"].items() if value}
        known = {"usage": use["usage"], "limits": {**view["limits"], **enforced}}
        return {**view, **known}, "" if use["usage"] else "its agent does not measure tasks"

    view, problem = run(master, found)
    lines = [*task_lines(view), *([f"  use so far is unknown: {problem}"] if problem else [])]
    lines += event_section(view["events"], terminal_width())
    print_result(view, *lines, as_json=as_json)


def is_within(role: str, above: str) -> bool:
    """Return whether `role` is `above` or below it."""
    return role == above or role.startswith(f"{above}/")


async def recent_events(master: Master, is_about: Callable[[pb.ClusterEvent], bool]) -> list[View]:
    """Return the latest events that pass; none if the caller may not view events."""
    found: list[View] = []
    request = pb.WatchEventsRequest(limit=EVENTS_SEARCHED)
    try:
        answers = master.answers(master.service.WatchEvents(request))
        async with aclosing(answers):
            async for answer in answers:
                found += [as_object(each) for each in answer.events if is_about(each)]
                found = found[-MOST_EVENTS:]
    except CroupierError:
        return []
    return found


async def _row(master: Master, kind: str, key: str, named: str) -> View:
    """Return an object of a list with its age; raises NotFound if it has gone meanwhile."""
    found = await first_page(master, kind, 0, text=named)
    for each in found:
        if each[key] == named:
            return each
    raise NotFound(f"{named} is no longer there; croupier {kind} lists the present ones")


def _public(view: View) -> View:
    """Return it without what only tables show."""
    return {key: _without_age(each) for key, each in view.items()}


def _without_age(each: Any) -> Any:
    if isinstance(each, dict):
        return {key: value for key, value in each.items() if key != "age_s"}
    if isinstance(each, Iterable) and not isinstance(each, str):
        return [_without_age(item) for item in each]
    return each


async def _find_task(master: Master, task_id: str, framework_id: str) -> View:
    found = await all_of(
        master, "tasks", framework_id=framework_id, task_id=task_id, with_commands=True
    )
    if not found:
        within = f" of framework {framework_id}" if framework_id else ""
        raise NotFound(
            f"no task {task_id!r}{within}; croupier tasks --text ... finds tasks, and the master"
            " forgets ended ones after a while"
        )
    running = [each for each in found if is_live(each)]
    if len(running) == 1:
        return running[0]
    if len(found) > 1:
        ids = ", ".join(each["framework_id"] for each in found)
        raise Conflict(
            f"several frameworks have a task {task_id!r}: {ids}; name one by --framework"
        )
    return found[0]


@app.command
def kill(
    task_id: str,
    /,
    *,
    framework: TaskFrameworkFlag = "",
    grace: GraceFlag = None,
    master: MasterFlag = LOCAL,
) -> None:
    """Kill a task.

    Args:
        task_id: Task id, as `croupier tasks` shows it.
        grace: The time between SIGTERM and SIGKILL, such as 10s; the task's own if not given.
    """
    request = kill_request(task_id, grace)

    async def killed(leader: Master) -> pb.TaskView:
        name = await TaskName(task_id, framework).resolved(leader)
        async with advising(name, leader):
            request.framework_id = name.framework_id
            return (await leader.ask(leader.service.KillTask, request)).task

    task = run(master, killed)
    framework_name = named(task.framework_name, task.framework_id)
    print_lines(f"task {task.task.task_id} of framework {framework_name} was asked to end")


def kill_request(task_id: str, grace_ms: int | None) -> pb.KillTaskRequest:
    """Return the request to kill a task, by `grace_ms` or its own grace; raises InvalidRequest."""
    check_id("task", task_id)
    policy = None if grace_ms is None else KillPolicy(grace_ms=grace_ms)
    return pb.KillTaskRequest(task_id=task_id, kill_policy=policy)
