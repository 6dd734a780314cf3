"""The usage of a task over HTTP: `GET /usage/FRAMEWORK/TASK`, as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from aiohttp import web

from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import Task
from croupier.agent.isolation.disk_watch import MIB
from croupier.agent.isolation.flags import IsolationFlags
from croupier.agent.isolation.limits import limits_of
from croupier.agent.task_usage import TaskUsage
from croupier.model.errors import InvalidRequest
from croupier.model.ids import FrameworkId, TaskId, check_id
from croupier.model.isolation import Feature
from croupier.model.task import TaskInfo
from croupier.process.http.routes import Requirement, Route


class UsageRoute:
    """Serves the usage and the limits of tasks that the agent has not forgotten."""

    def __init__(self, state: AgentState, usage: TaskUsage, flags: IsolationFlags) -> None:
        """Use the agent's flags for the limits of tasks that name none."""
        self._state, self._usage, self._flags = state, usage, flags

    def routes(self) -> list[Route]:
        """Return the route for the agent's HTTP server."""
        return [Route("/usage/{framework_id}/{task_id}", self._get, Requirement.OUTPUT_LINK)]

    async def _get(self, request: web.Request) -> web.Response:
        headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        try:
            framework_id = FrameworkId(check_id("framework", request.match_info["framework_id"]))
            task_id = TaskId(check_id("task", request.match_info["task_id"]))
        except InvalidRequest as error:
            return web.Response(text=f"{error}\n", status=400)
        task = self._state.tasks.get((framework_id, task_id))
        if task is None:
            text = f"the agent does not know task {task_id}, or its end is acknowledged\n"
            return web.Response(text=text, status=404)
        return web.json_response(self._view(task), headers=headers)

    def _view(self, task: Task) -> dict[str, Any]:
        usage = self._usage.of(task.key)
        return {
            "framework_id": task.framework_id,
            "task_id": task.info.task_id,
            "state": task.state.name,
            "usage": None if usage is None else asdict(usage),
            "limits": self._limits(task.info),
        }

    def _limits(self, info: TaskInfo) -> dict[str, float | None]:
        """Return the limits of a task, None for those that are not enforced."""
        has_quota = self._flags.cpu_quota == "on"
        limits = limits_of(info, self._flags.default_limits, has_quota=has_quota)
        found = {
            "cpus": (Feature.CPU_QUOTA, limits.cpus / 1000),
            "memory_bytes": (Feature.MEMORY, limits.mem * MIB // 1000),
            "disk_bytes": (Feature.DISK, limits.disk * MIB // 1000),
            "pids": (Feature.PIDS, limits.pids),
            "files": (Feature.FILES, limits.files),
        }
        features = self._state.features
        enforced = {
            name: amount or None if feature in features else None
            for name, (feature, amount) in found.items()
        }
        return {**enforced, "completion_ms": info.max_completion_ms or None}
