"""What a test sees of its master: calls, demands and tasks of the framework, as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from croupier.master.core.effects import SessionId
from croupier.master.core.frameworks import Framework
from croupier.master.core.tasks import Task
from croupier.model.demand import Demand
from croupier.model.errors import Conflict, NotFound
from croupier.model.ids import TaskId
from croupier.model.task import TaskState
from croupier.sdk.testing.recorded import RecordedCall
from croupier.sdk.testing.service import Service

FoundT = TypeVar("FoundT")


class Observed:
    """The state of a service of one framework, and waits for its changes."""

    def __init__(self, service: Service, timeout_s: float) -> None:
        self._service, self._timeout_s = service, timeout_s

    @property
    def demand(self) -> Demand | None:
        """The first of `demands`; None if there is none."""
        return next(iter(self.demands), None)

    @property
    def demands(self) -> tuple[Demand, ...]:
        """The framework's demands, counted down by the tasks that were launched."""
        framework, queries = self._service.framework, self._service.core.state.allocator.queries
        return queries.demands(framework.framework_id) if framework is not None else ()

    @property
    def is_suppressed(self) -> bool:
        """Whether the framework suppresses offers in all its roles."""
        framework = self._service.framework
        return framework is not None and self.suppressed_roles == set(framework.roles)

    @property
    def suppressed_roles(self) -> frozenset[str]:
        """The roles in which the framework suppresses offers."""
        framework, queries = self._service.framework, self._service.core.state.allocator.queries
        roles = queries.suppressed_roles(framework.framework_id) if framework is not None else ()
        return frozenset(roles)

    @property
    def is_connected(self) -> bool:
        """Whether a framework is subscribed now."""
        framework = self._service.framework
        return framework is not None and framework.session is not None

    @property
    def calls(self) -> tuple[RecordedCall, ...]:
        """The calls, except heartbeats, that `next_call` has not returned yet."""
        return tuple(call for call in self._service.calls if call.kind != "heartbeat")

    @property
    def refused(self) -> int:
        """The number of streams that were refused because this master follows."""
        return self._service.refused

    def task_state(self, task_id: str) -> TaskState:
        """Return the state of a task that was launched.

        Raises:
            NotFound: if it was not.
        """
        state = self._find_task_state(task_id)
        if state is None:
            raise NotFound(f"no task {task_id} was launched")
        return state

    async def subscribed(self) -> RecordedCall:
        """Wait for the next SUBSCRIBE that the master admitted; return each once."""
        return await self.next_call("subscribe")

    async def next_call(self, kind: str) -> RecordedCall:
        """Wait for the next call of that kind, in lower case; return each once."""

        def find() -> RecordedCall | None:
            call = next((call for call in self._service.calls if call.kind == kind), None)
            if call is not None:
                self._service.calls.remove(call)
            return call

        return await self._until(find, f"call {kind}")

    async def acknowledged(self, task_id: str, sequence: int) -> None:
        """Wait until the framework has acknowledged the task's updates up to `sequence`."""

        def find() -> bool | None:
            framework = self._service.framework
            task = framework.tasks.get(TaskId(task_id)) if framework is not None else None
            if task is not None:
                return task.acknowledged >= sequence or None
            # The core drops a task when its end is acknowledged.
            return self._find_task_state(task_id) is not None or None

        await self._until(find, f"acknowledgement of update {sequence} of {task_id}")

    def _subscribed(self) -> tuple[Framework, SessionId]:
        framework = self._service.framework
        if framework is None or framework.session is None:
            raise Conflict("no framework is subscribed")
        return framework, framework.session

    def _queued(self, task_ids: tuple[str, ...]) -> list[Task] | None:
        """Return the named tasks if all are queued; without names, all that are queued."""
        framework = self._service.framework
        queued = {task.task_id: task for task in framework.queues} if framework is not None else {}
        if not all(task_id in queued for task_id in task_ids):
            return None
        return [queued[TaskId(task_id)] for task_id in task_ids or queued] or None

    def _find_task_state(self, task_id: str) -> TaskState | None:
        service, key = self._service, TaskId(task_id)
        task = service.framework.tasks.get(key) if service.framework is not None else None
        if task is not None:
            return task.state
        ended = service.core.state.ended.get(service.framework_id, key)
        earlier = service.core.durable.ended.get((service.framework_id, key))
        return ended.status.state if ended is not None else earlier

    async def _until(self, find: Callable[[], FoundT | None], what: str) -> FoundT:
        """Wait until `find` returns a value, and return it."""
        changed = self._service.changed
        try:
            async with asyncio.timeout(self._timeout_s):
                while (found := find()) is None:
                    changed.clear()
                    await changed.wait()
                return found
        except TimeoutError:
            came = ", ".join(call.kind for call in self.calls) or "nothing"
            raise AssertionError(f"no {what} within {self._timeout_s} s; came: {came}") from None
