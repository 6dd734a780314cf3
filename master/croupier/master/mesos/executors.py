"""The executors of one framework of Mesos: each is a task, which the first task in it starts.

Rule: an executor is charged once on an agent, while it lives. One that names no resources takes a
thousandth of a CPU from its first task.

Its `data` are JSON, with the `ExecutorInfo` under `executor_info` and the `FrameworkInfo`, with its
id, under `framework_info`. The `data` of a task in it are its `TaskInfo`, as the framework sent it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from secrets import token_hex
from typing import Final

from croupier.master.core.frameworks import Framework
from croupier.master.mesos.tasks import (
    duration_ms,
    executor_id_in,
    executor_task_id,
    program_from_json,
)
from croupier.mesos.fields import Json, encoded, entry, id_of, parse_object, text
from croupier.model.errors import InvalidRequest
from croupier.model.executor import MESOS_API
from croupier.model.ids import TaskId
from croupier.v1 import task_pb2 as pb

# Of an executor without resources.
_LEAST_CPUS_MILLI: Final = 1


@dataclass(slots=True)
class _Executor:
    """An executor that lives, or is about to start.

    Attributes:
        task_id: the task that it is.
        name: its id, and that of its agent.
        digest: of the ExecutorInfo that it was made of.
        is_decided: whether the master has decided on its launch.
        wanted_by: the number of its tasks, less those that were refused; 0 if an earlier stream
            has started it.
    """

    task_id: TaskId
    name: tuple[str, str]
    digest: bytes
    is_decided: bool = True
    wanted_by: int = 0


class Executors:
    """Knows the task of each executor."""

    def __init__(self, info: Json, framework: Callable[[], Framework | None]) -> None:
        """`info` is the framework's FrameworkInfo; `framework` returns its state at the master."""
        self._info, self._framework = info, framework
        # None until the tasks have been searched.
        self._by_name: dict[tuple[str, str], _Executor] | None = None
        self._by_task: dict[TaskId, _Executor] = {}
        # Those that are ended because all of their tasks were refused. Mesos would not start them.
        self._left: set[TaskId] = set()

    def add_to(self, task: pb.TaskInfo, of: Json, agent_id: str) -> pb.TaskInfo | None:
        """Make `task` one in the executor that its description `of` names.

        Returns:
            The executor's own task if it must be started first, else None.

        Raises:
            InvalidRequest: if the executor is malformed, or differs from the one that lives.
        """
        info = entry(of, "executor")
        executor_id, digest = id_of(info, "executor_id"), _digest(info)
        if not executor_id or not agent_id:
            raise InvalidRequest("an executor needs an executor_id, and its task an agent_id")
        task.data = encoded(of)
        found = self._live(executor_id, agent_id)
        if found is not None:
            if found.digest != digest:
                raise InvalidRequest(
                    f"executor {executor_id[:80]!r} runs there with another ExecutorInfo"
                )
            task.executor_id = found.task_id
            found.wanted_by += bool(found.wanted_by)
            return None
        executor = self._made(info, executor_id, agent_id)
        if not executor.resources.ByteSize():
            executor.resources.cpus_milli = _LEAST_CPUS_MILLI
            if task.resources.cpus_milli > _LEAST_CPUS_MILLI:
                task.resources.cpus_milli -= _LEAST_CPUS_MILLI
        task.executor_id = executor.task_id
        task_id, name = TaskId(executor.task_id), (executor_id, agent_id)
        self._note(_Executor(task_id, name, digest, is_decided=False, wanted_by=1))
        return executor

    def task_of(self, executor_id: str, agent_id: str) -> TaskId | None:
        """Return the task of an executor that lives or is about to start; None if none does."""
        found = self._live(executor_id, agent_id)
        return None if found is None else found.task_id

    def decided(self, task_id: TaskId) -> None:
        """Record that the master has decided on the launch of an executor."""
        if task_id in self._by_task:
            self._by_task[task_id].is_decided = True

    def ended(self, task_id: TaskId) -> bool:
        """Forget an executor that has ended, or was not started; return whether it had tasks."""
        found = self._by_task.pop(task_id, None)
        if found is not None and self._known().get(found.name) is found:
            del self._known()[found.name]
        was_left = task_id in self._left
        self._left.discard(task_id)
        return not was_left

    def is_left_by(self, task_id: TaskId) -> bool:
        """Record that a task in an executor was refused; return whether it has none and must end.

        The next task starts the executor anew.
        """
        found = self._by_task.get(task_id)
        if found is None or not found.wanted_by:
            return False
        found.wanted_by -= 1
        if found.wanted_by:
            return False
        self.ended(task_id)
        self._left.add(task_id)
        return True

    def executor_of(self, task_id: TaskId) -> str:
        """Return the id of the executor that runs a task; empty if none does."""
        framework = self._framework()
        task = None if framework is None else framework.tasks.get(task_id)
        return "" if task is None else executor_id_in(task.info.executor_id, task.agent_id)

    def _live(self, executor_id: str, agent_id: str) -> _Executor | None:
        found = self._known().get((executor_id, agent_id))
        if found is None or not found.is_decided:
            return found
        framework = self._framework()
        task = None if framework is None else framework.tasks.get(found.task_id)
        if task is None or task.state.is_terminal or task.kill is not None:
            return None
        return found

    def _known(self) -> dict[tuple[str, str], _Executor]:
        """Return the executors by their names; the first call is O(tasks)."""
        if self._by_name is None:
            self._by_name = {}
            framework = self._framework()
            for task in [] if framework is None else list(framework.tasks.values()):
                executor_id = executor_id_in(task.task_id, task.agent_id)
                if executor_id and not task.state.is_terminal:
                    digest = _digest(entry(parse_object(task.info.data), "executor_info"))
                    self._note(_Executor(task.task_id, (executor_id, task.agent_id), digest))
        return self._by_name

    def _note(self, executor: _Executor) -> None:
        self._known()[executor.name] = self._by_task[executor.task_id] = executor

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
