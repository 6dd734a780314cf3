"""`croupier kill`."""

from __future__ import annotations

from croupier.cli.connection import Master, run
from croupier.cli.flags import LOCAL, GraceFlag, MasterFlag, TaskFrameworkFlag
from croupier.cli.terminal import named, print_lines
from croupier.ctl.app import app
from croupier.ctl.task_reader import TaskName, advising
from croupier.model.ids import check_id
from croupier.v1.operator_pb2 import KillTaskRequest, TaskView
from croupier.v1.task_pb2 import KillPolicy


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

    Parameters
    ----------
    task_id
        Task id, as `croupier tasks` shows it.
    grace
        The time between SIGTERM and SIGKILL, such as 10s; the task's own if not given.
    """
    request = kill_request(task_id, grace)

    async def killed(leader: Master) -> TaskView:
        name = await TaskName(task_id, framework).resolved(leader)
        async with advising(name, leader):
            request.framework_id = name.framework_id
            return (await leader.ask(leader.service.KillTask, request)).task

    task = run(master, killed)
    framework_name = named(task.framework_name, task.framework_id)
    print_lines(f"task {task.task.task_id} of framework {framework_name} was asked to end")


def kill_request(task_id: str, grace_ms: int | None) -> KillTaskRequest:
    """Return the request to kill a task; `grace_ms` None is the task's own.

    Raises:
        InvalidRequest: if the id is malformed.
    """
    check_id("task", task_id)
    policy = None if grace_ms is None else KillPolicy(grace_ms=grace_ms)
    return KillTaskRequest(task_id=task_id, kill_policy=policy)
