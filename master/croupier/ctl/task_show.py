"""Showing one task."""

from __future__ import annotations

from croupier.api.objects import as_object
from croupier.cli.amounts import View
from croupier.cli.connection import Master, run
from croupier.cli.flags import Target
from croupier.cli.table import terminal_width
from croupier.ctl.describe import recent_events
from croupier.ctl.lists import TASKS, all_of, id_of
from croupier.ctl.operation import print_result
from croupier.ctl.task_states import is_live
from croupier.ctl.views.described import event_section
from croupier.ctl.views.task import task_lines
from croupier.model.errors import Conflict, CroupierError, NotFound
from croupier.model.ids import check_id
from croupier.model.task import TaskState
from croupier.v1 import operator_pb2 as pb


def show_task(target: Target, task_id: str, framework_id: str, *, as_json: bool) -> None:
    """Print all that is known about a task; `framework_id` may be a name.

    Raises:
        InvalidRequest: if an id is malformed.
        NotFound: if the master knows no such task.
        Conflict: if several frameworks have a task of that id, none is named, and not one alone
            still runs.
    """
    check_id("task", task_id)

    async def found(master: Master) -> tuple[View, str]:
        task = await _find_task(master, task_id, await id_of(master, "framework", framework_id))
        own = (task["framework_id"], task_id)
        events = await recent_events(master, lambda each: (each.framework_id, each.task_id) == own)
        view = {**task, "events": events}
        if not is_live(view) or view["state"] == TaskState.QUEUED.name:
            return view, ""
        ids = {name: task[name] for name in ("framework_id", "task_id", "agent_id")}
        try:
            answer = await master.ask(master.service.GetTaskUse, pb.GetTaskUseRequest(**ids))
        except CroupierError as error:
            return view, str(error)
        use = as_object(answer)
        enforced = {name: value for name, value in use["limits"].items() if value}
        known = {"usage": use["usage"], "limits": {**view["limits"], **enforced}}
        return {**view, **known}, "" if use["usage"] else "its agent does not measure tasks"

    view, problem = run(target, found)
    lines = [*task_lines(view), *([f"  use so far is unknown: {problem}"] if problem else [])]
    lines += event_section(view["events"], terminal_width())
    print_result(view, *lines, as_json=as_json)


async def _find_task(master: Master, task_id: str, framework_id: str) -> View:
    found = await all_of(
        master, TASKS, framework_id=framework_id, task_id=task_id, with_commands=True
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
