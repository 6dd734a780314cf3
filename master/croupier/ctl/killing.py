"""The command that kills a task on behalf of the operator."""

from __future__ import annotations

import asyncio
import math

from croupier.ctl.connection import connected
from croupier.ctl.target import Target
from croupier.ctl.terminal import print_lines
from croupier.ctl.views import View, task_view
from croupier.model.errors import InvalidRequest
from croupier.model.ids import check_id
from croupier.model.task import MAX_GRACE_MS
from croupier.v1 import operator_pb2 as pb
from croupier.v1 import task_pb2


def kill_task(target: Target, task_id: str, framework_id: str, grace_s: float | None) -> None:
    """Ask for the end of a task and print what became of the wish; does not wait for the end.

    Raises:
        InvalidRequest: if an argument cannot be.
        NotFound: if there is no such task.
    """
    request = kill_request(task_id, framework_id, grace_s)

    async def asked() -> View:
        async with connected(target) as master:
            answer = await master.ask(master.service.KillTask, request)
            return task_view(answer.task)

    task = asyncio.run(asked())
    print_lines(f"task {task['task_id']} of framework {task['framework_id']} was asked to end")


def kill_request(task_id: str, framework_id: str, grace_s: float | None) -> pb.KillTaskRequest:
    """The request that asks for the end of a task.

    Raises:
        InvalidRequest: if an argument cannot be.
    """
    check_id("task", task_id)
    if framework_id:
        check_id("framework", framework_id)
    if grace_s is None:
        return pb.KillTaskRequest(task_id=task_id, framework_id=framework_id)
    if math.isnan(grace_s) or not 0 <= grace_s * 1000 <= MAX_GRACE_MS:
        raise InvalidRequest("--grace must be between 0 seconds and 24 hours")
    policy = task_pb2.KillPolicy(grace_ms=round(grace_s * 1000))
    return pb.KillTaskRequest(task_id=task_id, framework_id=framework_id, kill_policy=policy)
