"""The exchange between calls and workers, in the loop of an executor.

Rule: each call ends once: with a result, an exception, or a cancellation.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import InvalidStateError
from contextlib import contextmanager, suppress
from typing import Final

from croupier.futures.board import Board, Progress, Worker
from croupier.futures.call import Call
from croupier.futures.gate import Hello, WorkerLink
from croupier.futures.outcome import ClusterBroken, WorkerDied, death_of, error_of, give_result
from croupier.futures.remote import protocol
from croupier.futures.shape import Shape
from croupier.futures.start import ExecutorSettings, StartFailures, same_python, start_hint
from croupier.sdk import CroupierError, InvalidRequest, TaskState, TaskStatus

_LOGGER: Final = logging.getLogger("croupier.futures")
# Between two looks whether a worker that is to leave has ended its call.
LEAVE_S: Final = 0.05
# How long a lost worker's calls wait for the reason that its agent reports.
REASON_S: Final = 2.0
# For this long after the end of a task, what its worker has sent before is still read.
LAST_WORDS_S: Final = 0.2
# Larger results are unpickled in a thread, so that the loop goes on.
LARGE: Final = 1 << 20


class Exchange:
    """Gives calls to workers, and answers to futures; `broken`: why no more calls can run."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None], settings: ExecutorSettings
    ) -> None:
        self._loop, self._wake, self._settings = loop, wake, settings
        self.board = Board(settings.max_workers)
        self.links: dict[str, WorkerLink] = {}
        self.starts = StartFailures()
        self.broken: ClusterBroken | None = None
        self.done = self.failed = self.retried = 0
        self._failed_setups: dict[str, str] = {}
        # Calls of workers that are gone, until it is known why; and why tasks have ended.
        self._lost: dict[str, list[Call]] = {}
        self._ended: dict[str, str] = {}
        # Ended calls of the frames that are being handled.
        self._answers: deque[tuple[Call, int, bytes]] = deque()
        self._unpickling = 0

    @property
    def is_idle(self) -> bool:
        """Whether all calls are over."""
        busy = self._lost or self._unpickling or self._answers
        return not (busy or self.board.waiting or self.board.running)

    def progress(self, arrived: int) -> Progress:
        """Count calls and workers; approximately, while they change."""
        workers = list(self.board.workers.values())
        ready = sum(worker.is_ready for worker in workers)
        return Progress(
            waiting=self.board.waiting + arrived,
            running=self.board.running,
            done=self.done,
            failed=self.failed,
            retried=self.retried,
            workers=ready,
            starting=len(workers) - ready,
        )

    def tidy(self, idle_s: float) -> None:
        """Take back calls that wait behind a long one; end workers that are not needed."""
        now = time.monotonic()
        for worker in self.board.stuck(now):
            self.links[worker.task_id].send((protocol.TAKE_BACK, 0, b""))
        for worker in self.board.surplus(now, idle_s):
            self.board.leave(worker)
            self.links[worker.task_id].send((protocol.EXIT, 0, b""))

    # Calls.

    def add(self, call: Call) -> None:
        """Queue a call."""
        if self.broken is not None:
            self._fail(call, ClusterBroken(str(self.broken)))
            return
        self.board.add(call)
        self._feed_idle(call.terms.shape)

    def drop(self, call: Call) -> None:
        """Forget a call that was cancelled, and stop it if it runs."""
        was_known, worker = self.board.drop(call)
        if was_known:
            call.future.set_running_or_notify_cancel()
        if worker is not None:
            self.failed += 1
            self.links[worker.task_id].send((protocol.STOP_CALL, call.number, b""))

    def cancel_waiting(self) -> None:
        """Cancel the calls that no worker has."""
        for call in self.board.waiting_calls():
            call.future.cancel()

    def _feed_idle(self, shape: Shape) -> None:
        worker = self.board.idle_for(shape)
        if worker is not None:
            self._feed(worker)

    def _feed(self, worker: Worker) -> None:
        calls = self.board.next_calls(worker, time.monotonic())
        if not calls:
            return
        frames: list[tuple[int, int, bytes]] = []
        for call in calls:
            function = call.function
            key = 0
            if function is not None:
                key = function.number
                is_new, old = worker.keep(key)
                if is_new:
                    frames.append((protocol.FUNCTION, key, function.body))
                if old is not None:
                    frames.append((protocol.FORGET, old, b""))
            head = protocol.CALL_HEAD.pack(key, call.is_chunk)
            frames.append((protocol.CALL, call.number, head + call.payload))
        self.links[worker.task_id].send(*frames)

    def _on_result(self, call: Call, body: bytes) -> None:
        self.done += 1
        if len(body) < LARGE:
            give_result(call.future, body)
            return
        self._unpickling += 1

        def unpickle() -> None:
            give_result(call.future, body)
            self._loop.call_soon_threadsafe(over)

        def over() -> None:
            self._unpickling -= 1
            self._wake()

        self._loop.run_in_executor(None, unpickle)

    def _retry(self, call: Call, error: BaseException) -> None:
        """Run a call again, if it may be; else it fails with `error`."""
        if call.attempts > call.terms.retries or self.broken is not None:
            self._fail(call, error)
            return
        self.retried += 1
        self.board.put_back([call])
        self._feed_idle(call.terms.shape)
        self._wake()

    def _fail(self, call: Call, error: BaseException) -> None:
        self.failed += 1
        if call.future.cancelled():
            call.future.set_running_or_notify_cancel()
        with suppress(InvalidStateError):
            call.future.set_exception(error)

    def _died(self, call: Call, text: str) -> None:
        tried = f" (attempt {call.attempts} of {call.terms.retries + 1})"
        self._retry(call, WorkerDied(f"the worker ended during the call{tried}: {text}"))

    # Workers, as the gate tells.

    def admit(self, hello: Hello, link: WorkerLink) -> str:
        """Take a worker; refuse one that runs another Python."""
        problem = same_python(hello)
        worker = self.board.workers.get(hello.task_id)
        if problem:
            self.break_off(ClusterBroken(problem))
            return problem
        if worker is None or hello.task_id in self.links:
            return "the executor does not wait for this worker"
        self.links[hello.task_id] = link
        setup = (protocol.SETUP, self._settings.max_bytes, self._settings.setup)
        self._loop.call_soon(link.send, setup)
        return ""

    def on_frame(self, link: WorkerLink, kind: int, number: int, body: bytes) -> None:
        """Handle a message of a worker."""
        with self._guarded():
            self._handle(link, kind, number, body)

    def on_read(self, link: WorkerLink) -> None:
        """Send the worker its next calls, then handle its answers."""
        assert link.hello is not None
        with self._guarded():
            worker = self.board.workers.get(link.hello.task_id)
            if worker is not None and worker.task_id in self.links:
                self._feed(worker)
            while self._answers:
                call, kind, body = self._answers[0]
                if kind == protocol.RESULT:
                    self._on_result(call, body)
                else:
                    error = error_of(body, self._settings.max_bytes, link.hello.host)
                    give_up = self._retry if isinstance(error, call.terms.retry_on) else self._fail
                    give_up(call, error)
                self._answers.popleft()
            if not self.board.running:
                self._wake()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """End the executor after an internal error, so that no call waits forever."""
        try:
            yield
        except Exception as error:
            _LOGGER.exception("the executor failed")
            failure = ClusterBroken(f"the executor failed: {error!r}")
            for call, _, _ in self._answers:
                self._fail(call, failure)
            self.break_off(failure)

    def _handle(self, link: WorkerLink, kind: int, number: int, body: bytes) -> None:
        assert link.hello is not None
        task_id = link.hello.task_id
        worker = self.board.workers.get(task_id)
        if worker is None:
            return
        now = time.monotonic()
        if kind in (protocol.RESULT, protocol.ERROR):
            call = self.board.ended(worker, number, now)
            if call is not None:
                self._answers.append((call, kind, body))
        elif kind == protocol.READY:
            self.starts.on_success()
            self.board.ready(worker, now)
            self._wake()
        elif kind == protocol.GIVEN_BACK:
            self.board.given_back(worker, struct.unpack(f"!{len(body) // 8}Q", body))
            self._feed_idle(worker.shape)
            self._wake()
        elif kind == protocol.SETUP_FAILED:
            self._failed_setups[task_id] = body.decode(errors="replace")
        elif kind == protocol.DIED:
            self._on_died(worker, link.hello.host, number, body)

    def _on_died(self, worker: Worker, host: str, number: int, body: bytes) -> None:
        phase, ending, output = death_of(body)
        if phase == "setup":
            raised = self._failed_setups.get(worker.task_id)
            reason = f"\n{raised.rstrip()}" if raised else f" {ending}"
            self.break_off(ClusterBroken(f"a worker on {host} did not start:{reason}{output}"))
            return
        call = worker.calls.pop(number, None)
        self.board.unready(worker)
        if call is not None:
            self._died(call, f"its process on {host} {ending}{output}")

    def on_closed(self, link: WorkerLink) -> None:
        """Handle the end of a worker's connection."""
        assert link.hello is not None
        task_id = link.hello.task_id
        if self.links.get(task_id) is link:
            del self.links[task_id]
        calls = self.board.lost(task_id)
        if calls:
            self._lost[task_id] = calls
            ended = self._ended.pop(task_id, "")
            text = f"{link.hello.host} is lost: its connection ended"
            self._loop.call_later(
                0 if ended else REASON_S, self._settle_lost, task_id, ended or text
            )
        self._wake()

    def _settle_lost(self, task_id: str, text: str) -> None:
        for call in self._lost.pop(task_id, ()):
            self._died(call, text)
        self._wake()

    # Workers, as the master tells.

    def forget(self, task_id: str) -> None:
        """Handle a launch that had no effect."""
        self.board.lost(task_id)
        self._wake()

    def on_task_ended(self, status: TaskStatus) -> None:
        """Handle the end of a worker's task."""
        task_id = status.task_id
        text = _text_of(status)
        link = self.links.get(task_id)
        if link is not None:
            # Its connection says how the calls end, or ends now.
            if status.state is not TaskState.FINISHED:
                self._ended[task_id] = text
                self._loop.call_later(LAST_WORDS_S, link.abort)
        elif task_id in self.board.workers:
            is_hopeless = self.starts.on_failure(status, time.monotonic())
            self.forget(task_id)
            if is_hopeless:
                hint = start_hint(status, self._settings.reach)
                said = f"{self.starts.count} workers ended before they had connected. {text}{hint}"
                self.break_off(ClusterBroken(said))
        self._settle_lost(task_id, text)

    def on_preempted(self, task_ids: tuple[str, ...]) -> None:
        """End workers after the calls that they run."""
        for task_id in task_ids:
            worker, link = self.board.workers.get(task_id), self.links.get(task_id)
            if worker is None or link is None:
                continue
            self.board.leave(worker)
            link.send((protocol.TAKE_BACK, 0, b""))
            self._leave_when_free(worker, link)

    def on_fleet_failed(self, error: CroupierError) -> None:
        """Handle an error after which no worker can be launched."""
        advice = ""
        if isinstance(error, InvalidRequest) and "secret" in str(error):
            advice = " (workers get their key as a secret of their task: see docs/futures.md)"
        self.break_off(ClusterBroken(f"cannot launch workers: {error}{advice}"))

    def _leave_when_free(self, worker: Worker, link: WorkerLink) -> None:
        if worker.calls:
            self._loop.call_later(LEAVE_S, self._leave_when_free, worker, link)
        elif self.links.get(worker.task_id) is link:
            link.send((protocol.EXIT, 0, b""))

    def break_off(self, error: ClusterBroken) -> None:
        """End with an error, which all calls raise."""
        if self.broken is not None:
            return
        self.broken = error
        calls = [*self.board.calls(), *(call for lost in self._lost.values() for call in lost)]
        self._lost.clear()
        for call in calls:
            self._fail(call, ClusterBroken(str(error)))
        self._wake()


def _text_of(status: TaskStatus) -> str:
    said = f": {status.message}" if status.message else ""
    return f"task {status.task_id} is {status.state.name} ({status.reason.name}){said}"
