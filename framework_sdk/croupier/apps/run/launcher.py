"""The framework of `croupier run`, and the state of each copy of the command.

Rule: a copy is pending, launched or ended. A launched copy is queued at the master until it has
an agent. Only a copy that never ran becomes pending again: its agent dropped it, up to three times,
or the master could not queue it. The copies of a gang are launched together; the master itself
starts a gang again.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from croupier.apps.controller.engine import Engine, Handover
from croupier.apps.controller.outcomes import Outcome, state_text
from croupier.apps.run.job import Job
from croupier.apps.run.output import Outputs
from croupier.cli.flags import TIMED_OUT, Target
from croupier.cli.signals import SIGNAL_BASE
from croupier.sdk import CroupierError, Reason, TaskState, TaskStatus

MAX_DROPS: Final = 3
SUBMITTED_AT_ONCE: Final = 1_000
# Covers a restart of the master; no other program takes over this framework's id.
FAILOVER_S: Final = 60.0
_HAS_RUN = frozenset(
    {TaskState.RUNNING, TaskState.FINISHED, TaskState.FAILED, TaskState.KILLED, TaskState.KILLING}
)


@dataclass(slots=True)
class Copy:
    """One copy of the command.

    Attributes:
        name: the task id of its first try.
        tries: the number of submissions, which makes each task id unique.
        drops: the number of launches that an agent dropped.
        code: the exit code as in a shell, once it has ended.
    """

    index: int
    name: str
    tries: int = 0
    drops: int = 0
    code: int = 0

    @property
    def task_id(self) -> str:
        """The task id of the latest try."""
        return self.name + (f".{self.tries}" if self.tries > 1 else "")


class Progress:
    """All copies of one job; those of a gang are launched together."""

    def __init__(self, count: int, *, is_gang: bool = False) -> None:
        self._is_gang = is_gang
        self.copies = [Copy(index, f"run-{index}") for index in range(count)]
        self._pending = list(range(count))
        self._by_task: dict[str, Copy] = {}
        self._queued: set[str] = set()
        self._is_given_up = False

    @property
    def pending(self) -> int:
        """The number of copies that wait for an agent, at the master or to be submitted."""
        return 0 if self._is_given_up else len(self._pending) + len(self._queued)

    @property
    def live(self) -> list[Copy]:
        """The launched copies."""
        return list(self._by_task.values())

    @property
    def is_torn(self) -> bool:
        """Whether the master does not know all of a gang: the rest of it is of no use."""
        return self._is_gang and bool(self._pending and self._by_task)

    @property
    def is_over(self) -> bool:
        """Whether no copy is pending or launched."""
        return not self._pending and not self._by_task

    @property
    def exit_code(self) -> int:
        """The exit code of the first copy whose code is not 0; 0 if there is none."""
        return next((copy.code for copy in self.copies if copy.code), 0)

    def name_copies(self, stem: str) -> None:
        """Name the copies: `stem`, or `stem-0` and so on. The stem of a job is always the same."""
        for copy in self.copies:
            copy.name = stem if len(self.copies) == 1 else f"{stem}-{copy.index}"

    def find(self, task_id: str) -> Copy | None:
        """Return the launched copy whose latest try is this task."""
        return self._by_task.get(task_id)

    def launch(self, count: int) -> list[Copy]:
        """Submit up to `count` pending copies, lowest first, each with a new task id."""
        if self._is_gang and len(self._pending) < len(self.copies):
            return []
        taken = [heapq.heappop(self._pending) for _ in range(min(count, len(self._pending)))]
        copies = [self.copies[index] for index in taken]
        for copy in copies:
            copy.tries += 1
            self._by_task[copy.task_id] = copy
            self._queued.add(copy.task_id)
        return copies

    def put_back(self, copy: Copy) -> None:
        """Make a launched copy that never ran pending again."""
        self._queued.discard(copy.task_id)
        del self._by_task[copy.task_id]
        if not self._is_given_up:
            heapq.heappush(self._pending, copy.index)
        self._end_torn()

    def give_up(self) -> None:
        """Launch no more; end the pending copies without an exit code."""
        self._is_given_up = True
        self._pending.clear()

    def on_status(self, status: TaskStatus) -> str | None:
        """Apply a status update; return a warning for the user, if any."""
        copy = self._by_task.get(status.task_id)
        if copy is None:
            return None
        if status.agent_id:
            self._queued.discard(status.task_id)
        if status.state is TaskState.QUEUED:
            # Of a gang that starts again, the first one tells why.
            is_first = not self._queued and status.reason is Reason.GANG_ENDED
            self._queued.add(status.task_id)
            is_told = is_first or status.reason is Reason.PREEMPTED
            return f"{copy.task_id}: {state_text(status)}" if is_told else None
        if status.state is TaskState.UNKNOWN:
            self.put_back(copy)
        elif status.state is TaskState.DROPPED:
            return self._on_dropped(copy, status)
        elif status.state is TaskState.UNREACHABLE:
            if self._is_gang:
                self._end(copy, 1)
                return f"{copy.task_id}: its agent {status.agent_id} is unreachable; its gang ends"
            return f"{copy.task_id}: its agent {status.agent_id} is unreachable; waiting for it"
        elif status.state.is_terminal and status.reason is Reason.GANG_ENDED:
            # Another copy tells why, and has the exit code.
            self._end(copy, 0)
        elif status.state.is_terminal:
            self._end(copy, exit_code_of(status))
            wanted = self._is_given_up and status.state is TaskState.KILLED
            return None if wanted else warning_of(copy.task_id, status)
        return None

    def _on_dropped(self, copy: Copy, status: TaskStatus) -> str | None:
        copy.drops += 1
        if copy.drops <= MAX_DROPS and not self._is_gang:
            self.put_back(copy)
            return None
        self._end(copy, 1)
        return warning_of(copy.task_id, status)

    def _end(self, copy: Copy, code: int) -> None:
        self._queued.discard(copy.task_id)
        del self._by_task[copy.task_id]
        copy.code = code
        self._end_torn()

    def _end_torn(self) -> None:
        """End the pending copies of a gang if none of the others waits for them any more."""
        if self._is_gang and not self._by_task and len(self._pending) < len(self.copies):
            for index in self._pending:
                self.copies[index].code = 1
            self._pending.clear()


def exit_code_of(status: TaskStatus) -> int:
    """Return the exit code of an ended task as in a shell: 128 + N if signal N ended it.

    It is 124, as of timeout(1), for a task that did not end in time.
    """
    if status.reason is Reason.TIMED_OUT:
        return TIMED_OUT
    if status.signal is not None:
        return SIGNAL_BASE + status.signal
    if status.exit_code is not None and (status.exit_code or status.state is not TaskState.FAILED):
        return status.exit_code
    return 0 if status.state is TaskState.FINISHED else 1


def warning_of(task_id: str, status: TaskStatus) -> str | None:
    """Return a warning for an end that was not the command's own; None if it was."""
    has_ended = status.exit_code is not None or status.signal is not None
    is_agents = status.reason is Reason.CONTAINER_LAUNCH_FAILED or status.reason.is_limit
    by_itself = has_ended and not is_agents
    if status.state is TaskState.FINISHED or (status.state is TaskState.FAILED and by_itself):
        return None
    return f"{task_id}: {state_text(status)}"


class Launcher(Engine):
    """Launches the copies of one job. `over` is done when all have ended, or has the error."""

    def __init__(
        self, job: Job, target: Target, outputs: Outputs, warn: Callable[[str], None]
    ) -> None:
        super().__init__(target, job.title, job.role, keep_s=FAILOVER_S, insecure=job.is_insecure)
        self._job, self._outputs, self._warn = job, outputs, warn
        self.progress = Progress(job.count, is_gang=job.is_gang)

    def give_up(self) -> None:
        """Submit no more copies."""
        self.progress.give_up()
        self._settle()

    def kill_all(self) -> None:
        """Kill all submitted copies; the teardown kills those that this cannot."""
        for copy in self.progress.live:
            self.end_task(copy.task_id)

    def on_known(self, framework_id: str) -> None:
        """Name the copies."""
        self.progress.name_copies(self._job.stem(framework_id))

    def is_open(self, task_id: str) -> bool:
        """Return whether this is the latest try of a copy that has not ended."""
        return self.progress.find(task_id) is not None

    def take(self) -> list[Handover]:
        """Return copies that are pending: all of them, at first."""
        copies = self.progress.launch(SUBMITTED_AT_ONCE)
        tasks = self._job.tasks([copy.task_id for copy in copies]) if copies else []
        return [(task, ()) for task in tasks]

    def waiting(self) -> str:
        """Return which copies wait."""
        job, pending = self._job, self.progress.pending
        if pending and job.count == 1:
            return f"waiting to run the task ({job.unit})"
        text = f"waiting to run {pending} of {job.count} tasks ({job.unit} each)"
        return text if pending else ""

    def on_live(self, status: TaskStatus) -> None:
        """Follow the output of a task that runs, and apply its state."""
        if status.state is TaskState.STAGING:
            self.moved_at = asyncio.get_running_loop().time()
        self._apply_status(status)
        if self.progress.find(status.task_id) is None:
            # Of a gang, a copy ends when its agent is unreachable.
            self._outputs.on_ended(status.task_id, has_run=True, has_agent=False)
            self._settle()

    def on_end(self, status: TaskStatus, outcome: Outcome, error: CroupierError | None) -> None:
        """Apply the end of a try; raise the error of a master that will never take it."""
        if outcome is Outcome.REFUSED and error is not None:
            raise error
        self._apply_status(status)
        if self.progress.find(status.task_id) is None:
            has_run = status.exit_code is not None or status.signal is not None
            is_launched = status.reason is not Reason.CONTAINER_LAUNCH_FAILED
            self._outputs.on_ended(
                status.task_id,
                has_run=has_run and is_launched,
                has_agent=outcome is not Outcome.LOST,
            )
        self._settle()

    def _apply_status(self, status: TaskStatus) -> None:
        copy = self.progress.find(status.task_id)
        assert copy is not None
        if (agent := self.agent(status.agent_id)) is not None:
            self._outputs.sources.learn(agent.agent_id, agent.http_address)
        if status.state in _HAS_RUN and status.agent_id:
            self._outputs.follow(copy.index, status.agent_id, status.framework_id, status.task_id)
        if status.state is TaskState.QUEUED:
            self._outputs.on_requeued(status.task_id)
        was_pending = self.progress.pending
        warning = self.progress.on_status(status)
        if self.progress.pending and not was_pending:
            self.moved_at = asyncio.get_running_loop().time()
        if warning:
            self._warn(warning)
        if self.progress.is_torn:
            self.kill_all()

    def _settle(self) -> None:
        if self.progress.is_over:
            self.finish()
