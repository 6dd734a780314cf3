"""The executors of one framework of Mesos: each is a task, which the first task in it starts.

Rule: an executor is charged once on an agent, while it lives. One that names no resources takes a
thousandth of a CPU from its first task.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import blake2b
from secrets import token_hex
from typing import Final

from croupier.master.core.frameworks import Framework
from croupier.master.mesos.tasks import duration_ms, program_from_json
from croupier.mesos.executors import executor_id_in, executor_task_id
from croupier.mesos.fields import Json, encoded, entry, id_of, parse_object, text
from croupier.model.errors import InvalidRequest
from croupier.model.executor import MESOS_API
from croupier.model.ids import TaskId
from croupier.v1 import task_pb2 as pb

# Of an executor without resources.
_LEAST_CPUS_MILLI: Final = 1
# The id of an executor, and that of its agent.
_Name = tuple[str, str]


class Executors:
    """Knows the task of each executor."""

    def __init__(self, info: Json, framework: Callable[[], Framework | None]) -> None:
        """`info` is the framework's FrameworkInfo; `framework` returns its state at the master."""
        self._info, self._framework = info, framework
        # The task of each executor on an agent; None until the tasks have been searched.
        self._tasks: dict[_Name, TaskId] | None = None
        # Whose they are, and a digest of what each was made of.
        self._made_of: dict[TaskId, tuple[_Name, bytes]] = {}
        # Those of calls that are not decided yet.
        self._launching: set[TaskId] = set()
        # The tasks that each executor of this stream was started for, less those that were refused.
        self._wanted_by: dict[TaskId, int] = {}

    def add_to(self, task: pb.TaskInfo, of: Json, agent_id: str) -> pb.TaskInfo | None:
        """Make `task` one in the executor that its description `of` names.

        Returns:
            The executor's own task if it must be started first, else None.

        Raises:
            InvalidRequest: if the executor is malformed, or differs from the one that lives.
        """
        info = entry(of, "executor")
        executor_id = id_of(info, "executor_id")
        if not executor_id or not agent_id:
            raise InvalidRequest("an executor needs an executor_id, and its task an agent_id")
        task.data = encoded(of)
        found = self.task_of(executor_id, agent_id)
        if found:
            if self._made_of[found][1] != _digest(info):
                raise InvalidRequest(
                    f"executor {executor_id[:80]!r} runs there with another ExecutorInfo"
                )
            task.executor_id = found
            if found in self._wanted_by:
                self._wanted_by[found] += 1
            return None
        executor = self._made(info, executor_id, agent_id)
        if not executor.resources.ByteSize():
            executor.resources.cpus_milli = _LEAST_CPUS_MILLI
            if task.resources.cpus_milli > _LEAST_CPUS_MILLI:
                task.resources.cpus_milli -= _LEAST_CPUS_MILLI
        task.executor_id = executor.task_id
        task_id = TaskId(executor.task_id)
        self._note((executor_id, agent_id), task_id, info)
        self._launching.add(task_id)
        self._wanted_by[task_id] = 1
        return executor

    def task_of(self, executor_id: str, agent_id: str) -> TaskId | None:
        """Return the task of an executor that lives or is about to start; None if none does."""
        task_id = self._known().get((executor_id, agent_id))
        if task_id is None or task_id in self._launching:
            return task_id
        framework = self._framework()
        task = None if framework is None else framework.tasks.get(task_id)
        if task is None or task.state.is_terminal or task.kill is not None:
            return None
        return task_id

    def decided(self, task_id: TaskId) -> None:
        """Record that the master has decided on the launch of an executor."""
        self._launching.discard(task_id)

    def ended(self, task_id: TaskId) -> None:
        """Forget an executor that has ended, or was not started."""
        self._launching.discard(task_id)
        self._wanted_by.pop(task_id, None)
        name, _ = self._made_of.pop(task_id, (("", ""), b""))
        if self._tasks is not None and self._tasks.get(name) == task_id:
            del self._tasks[name]

    def is_left_by(self, task_id: TaskId) -> bool:
        """Record that a task in an executor was refused; return whether it has none and must end.

        The next task starts the executor anew.
        """
        if task_id not in self._wanted_by:
            return False
        self._wanted_by[task_id] -= 1
        if self._wanted_by[task_id]:
            return False
        self.ended(task_id)
        return True

    def executor_of(self, task_id: TaskId) -> str:
        """Return the id of the executor that runs a task; empty if none does."""
        framework = self._framework()
        task = None if framework is None else framework.tasks.get(task_id)
        return "" if task is None else executor_id_in(task.info.executor_id, task.agent_id)

    def _known(self) -> dict[_Name, TaskId]:
        """Return the task of each executor; the first call is O(tasks)."""
        if self._tasks is None:
            self._tasks = {}
            framework = self._framework()
            for task in [] if framework is None else list(framework.tasks.values()):
                executor_id = executor_id_in(task.task_id, task.agent_id)
                if executor_id and not task.state.is_terminal:
                    made_of = entry(parse_object(task.info.data), "executor_info")
                    self._note((executor_id, task.agent_id), task.task_id, made_of)
        return self._tasks

    def _note(self, name: _Name, task_id: TaskId, info: Json) -> None:
        self._known()[name] = task_id
        self._made_of[task_id] = name, _digest(info)

    def _made(self, info: Json, executor_id: str, agent_id: str) -> pb.TaskInfo:
        executor = program_from_json(info)
        executor.task_id = executor_task_id(token_hex(4), executor_id, agent_id)
        executor.name = text(info, "name") or executor_id
        executor.executor.api = MESOS_API
        executor.executor.shutdown_grace_ms = duration_ms(entry(info, "shutdown_grace_period"))
        framework = self._framework()
        if framework is not None:
            ids = {"id": {"value": framework.framework_id}}
            executor.data = encoded(
                {"executor_info": info, "framework_info": {**self._info, **ids}}
            )
        return executor


def _digest(info: Json) -> bytes:
    """Return a digest of an ExecutorInfo; Mesos' master fills in its framework_id.

    Clients write a whole number as 1 or as 1.0.
    """
    fields = {name: value for name, value in info.items() if name != "framework_id"}
    alike = json.dumps(json.loads(encoded(fields), parse_int=float), sort_keys=True)
    return blake2b(alike.encode(), digest_size=16).digest()
