"""The framework of an application: hands tasks to the cluster, and learns what becomes of them.

Rule: what `take` returns is on disk, and `on_end` stores an end before the update is acknowledged.
The engine asks the master about each task whose verdict or status it misses. So after a kill at any
moment each stored task is known to the cluster, which then tells its state, or it never ran. An
error of anything that runs beside the session ends the command.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final, TypeVar

from croupier.apps.controller.outcomes import Outcome, outcome_of
from croupier.apps.controller.process import framework_credentials
from croupier.apps.job_file.task_spec import BESIDE
from croupier.cli.flags import Target
from croupier.sdk import (
    Conflict,
    Constraint,
    CroupierError,
    Demand,
    Framework,
    NotFound,
    Offer,
    Task,
    TaskState,
    TaskStatus,
    TaskVerdict,
    Unavailable,
)

# Tasks that one call asks about.
ASKED_AT_ONCE: Final = 1_000
# The pause before a call is made again that the master had no room or no answer for.
AGAIN_S: Final = 1.0

T = TypeVar("T")


# A task to submit, with conditions on its agent.
Handover = tuple[Task, tuple[Constraint, ...]]


class Engine(Framework):
    """Runs the tasks of one policy, which a subclass is.

    Attributes:
        over: done when the policy says so; or has the error that ends the command.
        was_subscribed: whether the master has admitted it.
        moved_at: when tasks began to wait, or made progress, last; on the loop's clock.
    """

    def __init__(
        self,
        target: Target,
        name: str,
        role: str,
        *,
        framework_id: str = "",
        keep_s: float,
        insecure: bool = False,
        demands: Iterable[Demand] = (),
    ) -> None:
        """Continue as `framework_id`, if given; without this process, tasks run on for `keep_s`.

        `demands` are those of a policy that launches its tasks on offers.
        """
        super().__init__(
            name=name,
            role=role,
            master=str(target),
            credentials=framework_credentials(target),
            framework_id=framework_id or None,
            failover_timeout_s=keep_s,
            insecure=insecure,
            demands=demands,
        )
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.was_subscribed = False
        self.moved_at = asyncio.get_running_loop().time()
        # Tasks whose verdict or status is missing: to ask about, and asked about.
        self._unsure: set[str] = set()
        self._asked: set[str] = set()
        self._accepted: set[str] = set()
        # Why the master did not take a task; perhaps because it has it already.
        self._errors: dict[str, CroupierError] = {}
        self._kills: set[str] = set()
        self._again_at = 0.0
        self._wake = asyncio.Event()
        self._working: asyncio.Task[None] | None = None
        self._serving: asyncio.Task[None] | None = None
        self._owned: set[asyncio.Future[Any]] = set()

    # The policy.

    def on_known(self, framework_id: str) -> None:
        """Store the id under which the cluster knows the tasks."""

    def is_open(self, task_id: str) -> bool:
        """Return whether this is a task that is wanted and has not ended."""
        raise NotImplementedError

    def take(self) -> list[Handover]:
        """Return the next tasks to hand over, once they are stored as handed over.

        Those of a group follow each other.
        """
        return []

    def next_due(self) -> float | None:
        """Return when `take` may have more to return, on the loop's clock; None: after events."""
        return None

    def on_live(self, status: TaskStatus) -> None:
        """Apply the state of a task that has not ended."""

    def on_unknown_task(self, status: TaskStatus) -> None:
        """Handle a task that runs and is not open.

        By default it is killed: an attempt that was given up must not run beside a later one.
        """
        self.end_task(status.task_id)

    def on_end(self, status: TaskStatus, outcome: Outcome, error: CroupierError | None) -> None:
        """Apply and store the end of a task; `error` is why the master did not take it."""
        raise NotImplementedError

    def on_kill_refused(self, task_id: str, error: CroupierError) -> None:  # noqa: ARG002
        """Handle a kill that the master refused; by default it ends the command."""
        raise error

    def waiting(self) -> str:
        """Return what waits for agents, such as `waiting to run 2 tasks`; empty if nothing does."""
        return ""

    # What policies use.

    def wake(self) -> None:
        """Wake the loop, which hands tasks over and does other work."""
        self._wake.set()

    def ask_about(self, task_ids: Iterable[str]) -> None:
        """Ask the master for the state of tasks that it may have, but of none beside another."""
        self._unsure.update(task_id for task_id in task_ids if BESIDE not in task_id)
        self._wake.set()

    def end_task(self, task_id: str) -> None:
        """Kill a task."""
        self._kills.add(task_id)
        self._wake.set()

    def finish(self) -> None:
        """Complete `over`."""
        if not self.over.done():
            self.over.set_result(None)

    async def launch(self, offer: Offer, tasks: list[Task], refuse_s: float) -> None:
        """Launch stored tasks on an offer; the rest of it is declined for `refuse_s`."""
        try:
            verdicts = await self.accept(offer, tasks, refuse_s=refuse_s)
        except Unavailable:
            self.ask_about(task.task_id for task in tasks)
            return
        except CroupierError as error:
            verdicts = [TaskVerdict(task.task_id, error) for task in tasks]
        for verdict in verdicts:
            self._judge(verdict)
        self._wake.set()

    def own(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start work that ends with `serving` at the latest; an error of it completes `over`."""
        task = asyncio.create_task(work)
        self._owned.add(task)
        task.add_done_callback(self._on_owned_ended)
        return task

    @asynccontextmanager
    async def serving(self, *works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
        """Run the session, with `works` beside it, and end all of them.

        `over` is completed if the session ends, or one of the works fails.
        """
        self._serving = self.own(self.run())
        for work in works:
            self.own(work)
        try:
            yield
        finally:
            self.end()
            for task in self._owned - {self._serving}:
                task.cancel()
            await self.close()
            self.over.cancel()
            await asyncio.gather(*self._owned, self.over, return_exceptions=True)

    @property
    def has_session(self) -> bool:
        """Whether the session with the master is to go on."""
        return self._serving is not None and not self._serving.done()

    async def close(self, *, teardown: bool = False) -> None:
        """End the session; errors are dropped. With `teardown`, the master ends all tasks."""
        if self._serving is not None and self.has_session:
            with suppress(CroupierError):
                await self.stop(teardown=teardown)
            await asyncio.wait({self._serving})

    def end(self) -> None:
        """Make no further calls."""
        if self._working is not None:
            self._working.cancel()

    def _on_owned_ended(self, task: asyncio.Task[Any]) -> None:
        self._owned.discard(task)
        error = None if task.cancelled() else task.exception()
        if task is self._serving and error is None:
            error = Unavailable("the session with the master ended")
        if error is not None and not self.over.done():
            self.over.set_exception(error)

    # What the SDK calls. An error ends the command, and the update is not acknowledged.

    async def on_subscribed(self, framework_id: str) -> None:
        """Store the id, and go on with the work; answers on the way may have been lost."""
        with self._fatal():
            self.on_known(framework_id)
        self.was_subscribed = True
        self.ask_about(self._asked)
        if self._working is None:
            self._working = self.own(self._work())

    async def on_update(self, status: TaskStatus) -> None:
        """Apply an update."""
        with self._fatal():
            self._apply(status)

    async def on_error(self, error: CroupierError) -> None:
        """Do nothing: `run` raises the error."""

    def _apply(self, status: TaskStatus) -> None:
        task_id, is_known = status.task_id, status.state is not TaskState.UNKNOWN
        if BESIDE in task_id:
            # It ends with the task that it runs beside, which tells all that counts.
            return
        outcome = outcome_of(status, was_accepted=task_id in self._accepted)
        if outcome is None and not is_known:
            return  # the master will tell
        self._asked.discard(task_id)
        error = self._errors.pop(task_id, None)
        if outcome is None:
            if self.is_open(task_id):
                self._accepted.add(task_id)
                self.on_live(status)
            else:
                self.on_unknown_task(status)
            return
        self._accepted.discard(task_id)
        self._kills.discard(task_id)
        if not self.is_open(task_id):
            return
        if is_known:
            error = None
        elif error is not None:
            outcome = Outcome.DEFERRED if _is_passing(error) else Outcome.REFUSED
        self.on_end(status, outcome, error)
        self._wake.set()

    async def _work(self) -> None:
        """Make the calls, one after the other; they wait while no master can be reached."""
        while True:
            self._wake.clear()
            await self._ask()
            await self._kill_all()
            while members := self.take():
                await self._hand_over(members)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._due()):
                    await self._wake.wait()

    def _due(self) -> float | None:
        """Return when the next work is due, if nothing wakes it."""
        times = [] if (due := self.next_due()) is None else [due]
        if self._unsure or self._kills:
            times.append(max(self._again_at, asyncio.get_running_loop().time()))
        return min(times, default=None)

    async def _ask(self) -> None:
        if asyncio.get_running_loop().time() < self._again_at:
            return
        while self._unsure:
            part = sorted(self._unsure)[:ASKED_AT_ONCE]
            self._unsure.difference_update(part)
            self._asked.update(part)
            try:
                await self.reconcile(part)
            except Unavailable:
                self._unsure.update(part)
                self._pause()
                return

    async def _kill_all(self) -> None:
        wanted = sorted(self._kills)
        results = await asyncio.gather(*map(self.kill, wanted), return_exceptions=True)
        for task_id, error in zip(wanted, results, strict=True):
            if isinstance(error, Unavailable):
                self._pause()
                continue
            self._kills.discard(task_id)
            if isinstance(error, NotFound):
                self._unsure.add(task_id)
            elif isinstance(error, CroupierError):
                self.on_kill_refused(task_id, error)
            elif isinstance(error, BaseException):
                raise error

    async def _hand_over(self, members: list[Handover]) -> None:
        groups: dict[tuple[Constraint, ...], list[Task]] = {}
        for task, conditions in members:
            groups.setdefault(conditions, []).append(task)
        for conditions, tasks in groups.items():
            try:
                verdicts = await self.submit(tasks, constraints=conditions)
            except Unavailable:
                self.ask_about(task.task_id for task in tasks)
                continue
            for verdict in verdicts:
                self._judge(verdict)
            if any(each.error and _is_passing(each.error) for each in verdicts):
                self._pause()

    def _judge(self, verdict: TaskVerdict) -> None:
        if not self.is_open(verdict.task_id):
            return  # its end came first
        if verdict.error is None:
            self._accepted.add(verdict.task_id)
            return
        self._errors[verdict.task_id] = verdict.error
        self._unsure.add(verdict.task_id)

    def _pause(self) -> None:
        self._again_at = asyncio.get_running_loop().time() + AGAIN_S

    @contextmanager
    def _fatal(self) -> Iterator[None]:
        """Make an error the result of `over`."""
        try:
            yield
        except Exception as error:
            if not self.over.done():
                self.over.set_exception(error)
            raise


def _is_passing(error: CroupierError) -> bool:
    """Return whether the master may take the task later."""
    return isinstance(error, Conflict | NotFound | Unavailable)
