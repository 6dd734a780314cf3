"""The framework of `croupier batch`: hands ready tasks to the cluster and follows their updates.

Rule: a launch is stored before the cluster gets it, and its end before the update is acknowledged.
So after a kill at any moment each stored launch is either known to the cluster, which then reports
its state, or was never accepted and is started again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final

from croupier.apps.batch.machine import Machine, NodeState, Outcome, Task
from croupier.apps.batch.outcomes import outcome_of, reason_text
from croupier.apps.batch.reports import Reports
from croupier.apps.batch.state import BatchState
from croupier.apps.framework_credentials import framework_credentials
from croupier.apps.run.job import CALL_BYTES
from croupier.cli.flags import Target
from croupier.sdk import (
    Conflict,
    Constraint,
    CroupierError,
    Framework,
    InvalidRequest,
    TaskState,
    TaskStatus,
    TaskVerdict,
    Unavailable,
)
from croupier.sdk import Task as SdkTask

# Tasks that wait in the master; it is given more when half of them were placed.
MAX_QUEUED: Final = 1_000
_IN_A_CALL: Final = 500
# Between two attempts to end tasks that were handed over while this command stops.
_AGAIN_S: Final = 0.3
_LAUNCHED: Final = frozenset({TaskState.RUNNING, TaskState.KILLING})


@dataclass(frozen=True, slots=True)
class Ended:
    """A failed attempt; it is the last one if the task has ended."""

    task: Task
    status: TaskStatus | None
    reason: str


class Runner(Framework):
    """Runs the tasks of one machine.

    Attributes:
        over: done when all tasks have ended; or has the error.
        reports: why tasks failed.
        on_failed: called for each failed attempt.
        was_subscribed: whether the master has admitted it.
        running: tasks that run now.
        queued: tasks that the master has not placed yet.
        updated_at: time of the latest update, on the loop's clock.
    """

    def __init__(
        self,
        machine: Machine,
        state: BatchState,
        target: Target,
        *,
        framework_id: str,
        keep_s: float,
        reports: Reports,
    ) -> None:
        job = machine.plan.job
        super().__init__(
            name=job.name,
            role=job.role,
            master=str(target),
            credentials=framework_credentials(target),
            framework_id=framework_id or None,
            failover_timeout_s=keep_s,
        )
        self._job, self.machine, self._state = job, machine, state
        self.reports = reports
        self.on_failed: Callable[[Ended], None] = lambda _: None
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.was_subscribed = False
        self.running: set[int] = set()
        self.queued: set[int] = set()
        self.updated_at = asyncio.get_running_loop().time()
        # Tasks that the cluster has confirmed to have.
        self._accepted: set[int] = set()
        self._restored = [task.task_id for task in machine.active]
        self._conditions: dict[str, tuple[Constraint, ...]] = {}
        self._wake = asyncio.Event()
        self._pumping: asyncio.Task[None] | None = None
        self._random = random.Random()

    async def on_subscribed(self, framework_id: str) -> None:
        """Store the id, take over the tasks of an earlier process, and begin."""
        await self._guarded(self._subscribed(framework_id))

    async def on_update(self, status: TaskStatus) -> None:
        """Apply an update, and store the end of a task."""
        await self._guarded(self._update(status))

    async def on_error(self, error: CroupierError) -> None:
        """Do nothing: `run` raises the error."""

    def end(self) -> None:
        """Hand over no more tasks, now."""
        if self._pumping is not None:
            self._pumping.cancel()

    async def stop_tasks(self) -> None:
        """Start nothing more, and end all tasks; return when they have ended."""
        self.machine.stop()
        asked: set[str] = set()
        self._settle()
        while not self.over.done():
            active = self.machine.active
            new = [task.task_id for task in active if task.task_id not in asked]
            asked.update(new)
            queued = [task.task_id for task in active if task.node.index in self.queued]
            try:
                placed = await self._take_back(queued)
                await self._kill([*placed, *(each for each in new if each not in set(queued))])
            except CroupierError:
                asked.clear()
            await asyncio.wait({self.over}, timeout=_AGAIN_S)

    def keep_output(self, task: Task, output: str) -> None:
        """Store the last output of a failed task."""
        self.reports.add_output(task, output)
        self._save([task])

    async def _subscribed(self, framework_id: str) -> None:
        if self.was_subscribed:
            return
        self._state.set_framework(framework_id)
        self.was_subscribed = True
        for first in range(0, len(self._restored), MAX_QUEUED):
            await self.reconcile(self._restored[first : first + MAX_QUEUED])
        self._pumping = asyncio.create_task(self._guarded(self._pump()))
        self._settle()

    async def _update(self, status: TaskStatus) -> None:
        self.updated_at = asyncio.get_running_loop().time()
        found = self.machine.plan.node_of(status.task_id)
        if found is None:
            return
        node, launch = found
        task = self.machine.tasks[node.index]
        if task.state is not NodeState.ACTIVE or launch != task.launches:
            if not status.state.is_terminal and status.state is not TaskState.UNKNOWN:
                # A launch that was given up must not run beside a later one.
                await self._kill([status.task_id])
            return
        outcome = outcome_of(
            status,
            was_accepted=node.index in self._accepted,
            is_stopping=self.machine.is_stopped,
        )
        if outcome is not None:
            self._end(task, outcome, status, reason_text(status))
        elif status.state is not TaskState.UNKNOWN:
            self._accepted.add(node.index)
            if status.agent_id:
                self.queued.discard(node.index)
            if status.state in _LAUNCHED:
                self.running.add(node.index)
            else:
                self.running.discard(node.index)
        if self._has_room:
            self._wake.set()

    def _end(self, task: Task, outcome: Outcome, status: TaskStatus | None, reason: str) -> None:
        """Apply and store the end of an attempt."""
        index = task.node.index
        for each in (self.running, self.queued, self._accepted):
            each.discard(index)
        has_failed = outcome in (Outcome.FAILED, Outcome.REFUSED)
        if has_failed or outcome is Outcome.NEVER_RAN:
            self.reports.set(task, status.agent_id if status else "", reason)
        now = asyncio.get_running_loop().time()
        self.machine.on_end(task, outcome, now, self._random.random())
        if task.state is NodeState.DONE:
            self.reports.forget(task)
        self._save([task])
        if has_failed or task.state is NodeState.FAILED:
            self.on_failed(Ended(task, status, reason))
        self._wake.set()
        self._settle()

    def _save(self, tasks: Iterable[Task]) -> None:
        self._state.save(map(self.reports.row, tasks))

    @property
    def _has_room(self) -> bool:
        """Whether to hand over more tasks: not one by one."""
        return len(self.queued) <= MAX_QUEUED // 2

    async def _pump(self) -> None:
        """Hand over ready tasks, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            self.machine.on_time(loop.time())
            while self.machine.has_ready and self._has_room:
                taken = self.machine.take(self._most())
                if not taken:
                    break
                await self._hand_over(taken)
            due = self.machine.next_due
            wait_s = None if due is None else max(due - loop.time(), 0.0)
            try:
                await asyncio.wait_for(self._wake.wait(), wait_s)
            except TimeoutError:
                continue

    def _most(self) -> int:
        most = min(MAX_QUEUED - len(self.queued), _IN_A_CALL)
        if self._job.most_active is not None:
            most = min(most, self._job.most_active - self.machine.counts[NodeState.ACTIVE])
        return max(most, 0)

    async def _hand_over(self, tasks: list[Task]) -> None:
        """Store that these tasks are launched, and queue them."""
        self._save(tasks)
        self.queued.update(task.node.index for task in tasks)
        groups: dict[tuple[Constraint, ...], list[tuple[Task, SdkTask]]] = {}
        for task in tasks:
            conditions = self._conditions_of(task)
            try:
                groups.setdefault(conditions, []).append((task, self._made(task)))
            except InvalidRequest as error:
                self._end(task, Outcome.REFUSED, None, str(error))
        for conditions, members in groups.items():
            for part in _parts(members):
                await self._place(part, conditions)

    async def _place(
        self, members: list[tuple[Task, SdkTask]], conditions: tuple[Constraint, ...]
    ) -> None:
        try:
            verdicts = await self.submit([made for _, made in members], constraints=conditions)
        except Unavailable:
            # The tasks may be queued: ask the master.
            await self.reconcile([made.task_id for _, made in members])
            return
        for (task, made), verdict in zip(members, verdicts, strict=True):
            if task.state is NodeState.ACTIVE and task.task_id == made.task_id:
                self._apply(task, verdict)

    def _apply(self, task: Task, verdict: TaskVerdict) -> None:
        error = verdict.error
        if error is None:
            self._accepted.add(task.node.index)
        elif isinstance(error, (Conflict, Unavailable)):
            self._end(task, Outcome.DEFERRED, None, str(error))
        else:
            self._end(task, Outcome.REFUSED, None, str(error))

    def _conditions_of(self, task: Task) -> tuple[Constraint, ...]:
        step = task.node.step
        if step.name not in self._conditions:
            self._conditions[step.name] = step.spec.conditions()
        return self._conditions[step.name]

    def _made(self, task: Task) -> SdkTask:
        step, position = task.node.step, task.node.position
        title = step.filled(step.title, position) or task.node.name
        labels = {"batch": self._job.name, "task": task.node.name}
        return step.task_spec(position).task(task.task_id, title, labels)

    async def _take_back(self, task_ids: list[str]) -> list[str]:
        """Withdraw tasks; return those that were placed already."""
        verdicts = await self.withdraw(task_ids) if task_ids else []
        return [each.task_id for each in verdicts if isinstance(each.error, Conflict)]

    async def _kill(self, task_ids: list[str]) -> None:
        kills = (self.kill(task_id) for task_id in task_ids)
        await asyncio.gather(*kills, return_exceptions=True)

    async def _guarded(self, handling: Coroutine[Any, Any, None]) -> None:
        """Run a handler; its error ends the command through `over`."""
        try:
            await handling
        except Exception as error:
            if not self.over.done():
                self.over.set_exception(error)
            raise

    def _settle(self) -> None:
        if self.machine.is_over and not self.over.done():
            self.over.set_result(None)


def _parts(members: list[tuple[Task, SdkTask]]) -> Iterable[list[tuple[Task, SdkTask]]]:
    """Divide tasks so that each part fits into one call."""
    part: list[tuple[Task, SdkTask]] = []
    size = 0
    for task, made in members:
        # UTF-8 takes up to four bytes for a character.
        bytes_ = 4 * made.info.size + 512
        if part and size + bytes_ > CALL_BYTES:
            yield part
            part, size = [], 0
        part.append((task, made))
        size += bytes_
    if part:
        yield part
