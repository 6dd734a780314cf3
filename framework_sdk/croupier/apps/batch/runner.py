"""The framework of `croupier batch`: hands ready tasks to the cluster and stores their ends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from croupier.apps.batch.machine import BatchTask, BatchTasks, NodeState
from croupier.apps.batch.state import BatchState
from croupier.apps.controller.engine import Engine, Handover
from croupier.apps.controller.outcomes import Outcome, own_end
from croupier.cli.flags import Target
from croupier.model.printable import printable
from croupier.sdk import (
    Conflict,
    Constraint,
    CroupierError,
    InvalidRequest,
    Reason,
    TaskState,
    TaskStatus,
)

# Tasks that wait in the master; it is given more when half of them were placed.
MAX_QUEUED: Final = 1_000
_IN_A_CALL: Final = 500
# Tasks of one run whose last output is read, so many lines of so many characters.
MOST_TAILS: Final = 50
LINES: Final = 10
WIDTH: Final = 300
# Between two attempts to end tasks that were handed over while this command stops.
_AGAIN_S: Final = 0.3
_LAUNCHED: Final = frozenset({TaskState.RUNNING, TaskState.KILLING})


@dataclass(frozen=True, slots=True)
class MemberEnd:
    """The end of one of the tasks of an attempt; `error` is why it never ran."""

    status: TaskStatus
    outcome: Outcome
    error: CroupierError | None

    def weight(self) -> int:
        """Return how much it counts: of a gang, the first end of the largest weight does."""
        if self.status.reason is Reason.GANG_ENDED:
            return 2  # another member has failed; perhaps before this command was started again
        if self.outcome is Outcome.SUCCEEDED:
            return 1
        # A member that was not known since this command started had ended; how, the others tell.
        is_forgotten = self.status.state is TaskState.UNKNOWN and self.error is None
        return 0 if is_forgotten and self.outcome is Outcome.NEVER_RAN else 3


class Runner(Engine):
    """Runs the tasks of one machine.

    Attributes:
        on_failed: called for each failed attempt, with the reason; it is the last one if the task
            has ended.
        running: tasks that run now.
        queued: tasks that the master has not placed yet.
    """

    def __init__(
        self,
        machine: BatchTasks,
        state: BatchState,
        target: Target,
        *,
        framework_id: str,
        keep_s: float,
    ) -> None:
        job = machine.plan.job
        super().__init__(target, job.name, job.role, framework_id=framework_id, keep_s=keep_s)
        self._job, self.machine, self._state = job, machine, state
        self.on_failed: Callable[[BatchTask, TaskStatus | None, str], None] = lambda *_: None
        self.running: set[int] = set()
        self.queued: set[int] = set()
        self._reading: list[asyncio.Task[None]] = []
        self._conditions: dict[str, tuple[Constraint, ...]] = {}
        self._random = random.Random()
        # By index, of attempts with members that still run: the worst end of a member so far.
        self._ends: dict[int, MemberEnd] = {}
        self.ask_about(_open_ids(machine))

    async def stop_tasks(self) -> None:
        """Start nothing more, and end all tasks; return when they have ended."""
        self.machine.is_stopped = True
        asked: set[str] = set()
        self._settle()
        while not self.over.done():
            new = [task_id for task_id in _open_ids(self.machine) if task_id not in asked]
            asked.update(new)
            active = (task for task in self.machine.active if task.node.index in self.queued)
            queued = [task_id for task in active for task_id in task.open_ids]
            try:
                verdicts = await self.withdraw(queued) if queued else []
                for verdict in verdicts:
                    if isinstance(verdict.error, Conflict):  # it was placed already
                        self.end_task(verdict.task_id)
            except CroupierError:
                asked.clear()
            for task_id in set(new).difference(queued):
                self.end_task(task_id)
            await asyncio.wait({self.over}, timeout=_AGAIN_S)

    def read_tail(self, task: BatchTask, status: TaskStatus | None) -> None:
        """Begin to read the last output of a failed task, unless that of many was read.

        It is a help for the user: what cannot be read is left out, and changes no result.
        """
        if status is not None and status.agent_id and len(self._reading) < MOST_TAILS:
            self._reading.append(self.own(self._read_tail(task, status.task_id)))

    async def tails_read(self, timeout_s: float) -> None:
        """Wait until all last output is read and stored, at most `timeout_s`."""
        if self._reading:
            await asyncio.wait(self._reading, timeout=timeout_s)

    async def _read_tail(self, task: BatchTask, task_id: str) -> None:
        with suppress(CroupierError):
            stdout, stderr = [
                await self.read_output(task_id, stderr=is_stderr, tail=LINES)
                for is_stderr in (False, True)
            ]
            if text := last_lines(stdout, stderr):
                task.output = text
                self._state.save([task])

    def on_known(self, framework_id: str) -> None:
        """Store the id."""
        if not self.was_subscribed:
            self._state.keep(framework_id=framework_id)
            self._settle()

    def is_open(self, task_id: str) -> bool:
        """Return whether this is the latest launch of a task that has not ended."""
        return self.machine.find(task_id) is not None

    def take(self) -> list[Handover]:
        """Start ready tasks, not one by one while many are queued."""
        self.machine.on_time(asyncio.get_running_loop().time())
        if len(self.queued) > MAX_QUEUED // 2:
            return []
        tasks = self.machine.take(self._most())
        self._state.save(tasks)
        self.queued.update(task.node.index for task in tasks)
        return [each for task in tasks for each in self._made(task)]

    def next_due(self) -> float | None:
        """Return the end of the next pause."""
        return self.machine.next_due

    def waiting(self) -> str:
        """Return how many tasks wait, while none runs."""
        active = self.machine.counts[NodeState.ACTIVE]
        if self.running or not active:
            return ""
        return "waiting to run " + ("1 task" if active == 1 else f"{active} tasks")

    def on_live(self, status: TaskStatus) -> None:
        """Record where a task waits or runs."""
        task = self.machine.find(status.task_id)
        assert task is not None
        self.moved_at = asyncio.get_running_loop().time()
        if status.agent_id:
            self.queued.discard(task.node.index)
        elif status.state is TaskState.QUEUED:
            self.queued.add(task.node.index)
        if status.state in _LAUNCHED:
            self.running.add(task.node.index)
        else:
            self.running.discard(task.node.index)
        self.wake()
        if status.state is TaskState.UNREACHABLE and task.node.step.gang is not None:
            # The master ends the others; if the agent returns, it ends this one too.
            self.on_end(status, Outcome.LOST, None)

    def on_end(self, status: TaskStatus, outcome: Outcome, error: CroupierError | None) -> None:
        """Apply and store the end of an attempt; that of a gang once all its members have ended."""
        task = self.machine.find(status.task_id)
        assert task is not None
        self.moved_at = asyncio.get_running_loop().time()
        end, index = MemberEnd(status, outcome, error), task.node.index
        counted = max(self._ends.pop(index, end), end, key=MemberEnd.weight)
        if not self.machine.on_member_end(status.task_id):
            self._ends[index] = counted
            if status.state is TaskState.UNKNOWN and outcome is Outcome.LOST:
                for task_id in task.open_ids:  # the master may not know that it is a gang
                    self.end_task(task_id)
            return
        status, outcome, error = counted.status, counted.outcome, counted.error
        reason = reason_text(status) if error is None else str(error)
        if status.reason is Reason.GANG_ENDED:
            outcome = Outcome.FAILED  # also if it has exited with 0 then
        if self.machine.is_stopped and outcome in (Outcome.FAILED, Outcome.LOST):
            # A task may answer SIGTERM with an exit code of its own.
            outcome = Outcome.STOPPED
        if task.node.step.gang is not None:
            reason = f"rank {status.task_id.rpartition('.')[2]}: {reason}"
        self._end(task, outcome, status, reason)

    def _end(
        self, task: BatchTask, outcome: Outcome, status: TaskStatus | None, reason: str
    ) -> None:
        self.running.discard(task.node.index)
        self.queued.discard(task.node.index)
        has_failed = outcome in (Outcome.FAILED, Outcome.LOST, Outcome.REFUSED)
        if has_failed or outcome is Outcome.NEVER_RAN:
            task.report(status.agent_id if status else "", reason)
        self.machine.on_end(task, outcome, asyncio.get_running_loop().time(), self._random.random())
        if task.state is NodeState.DONE:
            task.report()
        self._state.save([task])
        if has_failed or task.state is NodeState.FAILED:
            self.on_failed(task, status, reason)
        self.wake()
        self._settle()

    def _most(self) -> int:
        most = min(MAX_QUEUED - len(self.queued), _IN_A_CALL)
        if self._job.most_active is not None:
            most = min(most, self._job.most_active - self.machine.counts[NodeState.ACTIVE])
        return max(most, 0)

    def _made(self, task: BatchTask) -> list[Handover]:
        """Return the task to submit with those beside it; none if no agent can ever run it."""
        step, position = task.node.step, task.node.position
        title = step.filled(step.title, position) or task.name
        labels = {"batch": self._job.name, "task": task.name}
        if step.name not in self._conditions:
            self._conditions[step.name] = step.spec.conditions()
        try:
            made = step.made(position, task.open_ids, title, labels)
        except InvalidRequest as error:
            self._end(task, Outcome.REFUSED, None, str(error))
            return []
        return [(each, self._conditions[step.name]) for each in made]

    def _settle(self) -> None:
        if self.machine.is_over:
            self.finish()


def _open_ids(machine: BatchTasks) -> list[str]:
    """Return the ids of the tasks that the cluster has."""
    return [task_id for task in machine.active for task_id in task.open_ids]


def last_lines(stdout: bytes, stderr: bytes) -> str:
    """Return the last lines of what a task wrote, of stderr if there are any; printable."""
    data = stderr if stderr.strip() else stdout
    lines = data.decode(errors="replace").rstrip().splitlines()[-LINES:]
    return "\n".join(printable(line.replace("\t", "    "))[:WIDTH] for line in lines)


def reason_text(status: TaskStatus) -> str:
    """Return why an attempt failed, such as `exit code 3`."""
    if status.state is TaskState.UNKNOWN:
        return "its result is lost: the cluster does not know the task any more"
    named = status.state if status.reason is Reason.NONE else status.reason
    words = named.name.lower().replace("_", " ")
    return own_end(status) or (f"{words}: {status.message}" if status.message else words)
