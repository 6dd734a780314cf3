"""The thread of an executor: its event loop, where calls and workers meet.

Rule: everything but `submit`, `close` and `cancelled` runs in the loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from croupier.sdk import CroupierError, InvalidRequest, Task, TaskState, TaskStatus
from croupier.sdk.futures.board import Board, Worker
from croupier.sdk.futures.call import Call
from croupier.sdk.futures.certificate import Identity
from croupier.sdk.futures.errors import ClusterBroken, WorkerDied
from croupier.sdk.futures.fleet import Fleet, FleetSettings
from croupier.sdk.futures.gate import Gate, Hello, WorkerLink
from croupier.sdk.futures.outcome import Death, death_of, error_of, output_text, result_of, settle
from croupier.sdk.futures.progress import Progress
from croupier.sdk.futures.reach import Reach
from croupier.sdk.futures.remote import worker as remote
from croupier.sdk.futures.shape import Shape
from croupier.sdk.futures.start import Launch, StartFailures, same_python

_LOGGER: Final = logging.getLogger("croupier.sdk.futures")
TICK_S: Final = 0.05
IDLE_TICK_S: Final = 0.5
# How long a lost worker's calls wait for the reason that its agent reports.
REASON_S: Final = 2.0
CLOSE_S: Final = 5.0
# Larger results are unpickled in a thread, so that the loop goes on.
LARGE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The settings of an executor."""

    fleet: FleetSettings
    launch: Launch
    reach: Reach
    max_workers: int
    idle_s: float
    max_bytes: int
    setup: bytes
    on_progress: Callable[[Progress], None] | None


class Engine:
    """Runs calls in a thread of its own, from the first call until `close`."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._board = Board(settings.max_workers)
        self._lock = threading.Lock()
        self._arrived: deque[Callable[[], None]] = deque()
        self._is_woken = False
        self._is_closed = False
        self._broken: ClusterBroken | None = None
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._links: dict[str, WorkerLink] = {}
        self._failed_setups: dict[str, str] = {}
        self._lost: dict[str, list[Call]] = {}
        # Ended calls of the frames that are being handled.
        self._answers: list[tuple[Call, int, bytes]] = []
        self._starts = StartFailures()
        self._done = self._failed = self._retried = 0
        self._told: Progress | None = None
        self._unpickling = 0

    # Called in any thread.

    def check(self, shape: Shape) -> None:
        """Check that such workers can be asked for.

        Raises:
            InvalidRequest: if no agent can ever run one.
        """
        self._settings.launch.task("check", shape, "{}")

    def check_open(self) -> None:
        """Check that calls can be submitted.

        Raises:
            ClusterBroken: if no more calls can run.
            RuntimeError: if the executor was shut down.
        """
        if self._broken is not None:
            raise ClusterBroken(str(self._broken))
        if self._is_closed:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def submit(self, call: Call) -> None:
        """Queue a call.

        Raises:
            ClusterBroken: if no more calls can run.
            RuntimeError: if the executor was shut down.
        """
        with self._lock:
            self.check_open()
            if self._thread is None:
                self._start(call.terms.shape)
            self._post(lambda: self._add(call))

    def cancelled(self, call: Call) -> None:
        """Drop a call that was cancelled."""
        with self._lock:
            if not self._loop.is_closed():
                self._post(lambda: self._drop(call))

    def close(self, *, wait: bool, cancel: bool = False, kill: bool = False) -> None:
        """Take no more calls, and end when all are over.

        Args:
            wait: until the end.
            cancel: the calls that have not begun.
            kill: the workers, and with them the calls that run.
        """
        with self._lock:
            self._is_closed = True
            thread = self._thread
            if thread is None:
                self._loop.close()
                return
            if not self._loop.is_closed():
                if cancel or kill:
                    self._post(self._cancel_waiting)
                if kill:
                    self._post(lambda: self._break(ClusterBroken("the executor was terminated")))
                self._post(lambda: None)
        if wait and thread is not threading.current_thread():
            thread.join()

    def progress(self) -> Progress:
        """Count calls and workers; approximately, while they change."""
        board = self._board
        workers = list(board.workers.values())
        ready = sum(worker.is_ready for worker in workers)
        return Progress(
            waiting=board.waiting + len(self._arrived),
            running=board.running,
            done=self._done,
            failed=self._failed,
            retried=self._retried,
            workers=ready,
            starting=len(workers) - ready,
        )

    def _start(self, first: Shape) -> None:
        self._thread = threading.Thread(
            target=self._run, args=(first,), name="croupier-futures", daemon=True
        )
        self._thread.start()

    def _post(self, action: Callable[[], None]) -> None:
        self._arrived.append(action)
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._take)

    # The thread.

    def _run(self, first: Shape) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._main(first))
        except BaseException as error:
            _LOGGER.exception("the executor failed")
            self._break(ClusterBroken(f"the executor failed: {error!r}"))
        finally:
            with self._lock:
                # A call that was cancelled last; one that was submitted has raised.
                self._loop.run_until_complete(self._loop.shutdown_default_executor())
                self._loop.close()

    async def _main(self, first: Shape) -> None:
        self._changed = asyncio.Event()
        self._identity = Identity()
        self._gate = Gate(self._identity, self, self._settings.max_bytes)
        reach = self._settings.reach
        try:
            self._port = await self._gate.listen(reach.listen, reach.port)
            self._fleet = Fleet(self._settings.fleet, self, self._make_task, first)
        except (OSError, CroupierError) as error:
            self._gate.close()
            self._break(ClusterBroken(f"cannot listen on {reach.listen}:{reach.port}: {error}"))
            return
        session = asyncio.create_task(self._session())
        try:
            await self._serve(session)
        finally:
            await self._end(session)

    async def _session(self) -> None:
        try:
            await self._fleet.run()
        except CroupierError as error:
            self.on_fleet_failed(error)

    async def _serve(self, session: asyncio.Task[None]) -> None:
        """Run until all is over."""
        while not self._is_over():
            self._tick()
            planning = asyncio.create_task(self._plan())
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_S if self._board.running else IDLE_TICK_S):
                    await self._changed.wait()
            if session.done():
                await asyncio.gather(planning, return_exceptions=True)
            if planning.done():
                planning.result()
                continue
            # The master does not answer now; calls go on meanwhile.
            while not (planning.done() or self._is_over()):
                self._tick()
                await asyncio.wait({planning}, timeout=TICK_S)
            if not planning.done():
                planning.cancel()

    async def _plan(self) -> None:
        if self._fleet.framework_id is None or not self._starts.may_start(time.monotonic()):
            return
        await self._fleet.plan(self._board.missing())

    def _is_over(self) -> bool:
        if self._broken is not None:
            return True
        idle = not (self._arrived or self._lost or self._unpickling)
        return self._is_closed and idle and not (self._board.waiting or self._board.running)

    async def _end(self, session: asyncio.Task[None]) -> None:
        """End the workers, and then the framework."""
        if self._broken is None:
            for link in self._links.values():
                link.send((remote.EXIT, 0, b""))
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    while self._links:
                        self._changed.clear()
                        await self._changed.wait()
        self._gate.close()
        self._tell()
        try:
            if not session.done():
                await self._fleet.stop(teardown=self._fleet.framework_id is not None)
        except CroupierError as error:
            # The workers have ended; the master forgets the framework after its timeout.
            _LOGGER.info("the framework was not removed: %s", error)
        session.cancel()
        await asyncio.gather(session, return_exceptions=True)

    def _tick(self) -> None:
        now = time.monotonic()
        for worker in self._board.stuck(now):
            self._links[worker.task_id].send((remote.TAKE_BACK, 0, b""))
        for worker in self._board.surplus(now, self._settings.idle_s):
            self._board.leave(worker)
            self._links[worker.task_id].send((remote.EXIT, 0, b""))
        self._tell()

    def _tell(self) -> None:
        tell, progress = self._settings.on_progress, self.progress()
        if tell is not None and progress != self._told:
            self._told = progress
            try:
                tell(progress)
            except Exception:
                _LOGGER.exception("on_progress failed")

    def _take(self) -> None:
        """Do what other threads asked for."""
        with self._lock:
            self._is_woken = False
            actions, self._arrived = self._arrived, deque()
        for action in actions:
            action()
        self._wake()

    def _wake(self) -> None:
        if changed := getattr(self, "_changed", None):
            changed.set()

    # Calls.

    def _add(self, call: Call) -> None:
        if self._broken is not None:
            self._fail(call, ClusterBroken(str(self._broken)))
            return
        self._board.add(call)
        self._feed_idle(call.terms.shape)

    def _drop(self, call: Call) -> None:
        was_known, worker = self._board.drop(call)
        if was_known:
            call.future.set_running_or_notify_cancel()
        if worker is not None:
            self._failed += 1
            self._links[worker.task_id].send((remote.STOP_CALL, call.number, b""))

    def _cancel_waiting(self) -> None:
        for call in self._board.waiting_calls():
            call.future.cancel()

    def _feed_idle(self, shape: Shape) -> None:
        worker = self._board.idle_for(shape)
        if worker is not None:
            self._feed(worker)

    def _feed(self, worker: Worker) -> None:
        calls = self._board.next_calls(worker, time.monotonic())
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
                    frames.append((remote.FUNCTION, key, function.body))
                if old is not None:
                    frames.append((remote.FORGET, old, b""))
            head = remote.CALL_HEAD.pack(key, call.is_chunk)
            frames.append((remote.CALL, call.number, head + call.payload))
        self._links[worker.task_id].send(*frames)

    def _on_result(self, call: Call, body: bytes) -> None:
        self._done += 1
        if len(body) < LARGE:
            settle(call.future, lambda: result_of(body))
            return
        self._unpickling += 1

        def unpickle() -> None:
            settle(call.future, lambda: result_of(body))
            self._loop.call_soon_threadsafe(over)

        def over() -> None:
            self._unpickling -= 1
            self._wake()

        self._loop.run_in_executor(None, unpickle)

    def _on_error(self, call: Call, body: bytes, host: str) -> None:
        error = error_of(body, self._settings.max_bytes, host)
        if isinstance(error, call.terms.retry_on):
            self._retry(call, error)
        else:
            self._fail(call, error)

    def _retry(self, call: Call, error: BaseException) -> None:
        """Run a call again, if it may be; else it fails with `error`."""
        if call.attempts > call.terms.retries or self._broken is not None:
            self._fail(call, error)
            return
        self._retried += 1
        self._board.put_back([call])
        self._feed_idle(call.terms.shape)
        self._wake()

    def _fail(self, call: Call, error: BaseException) -> None:
        self._failed += 1

        def give() -> object:
            raise error

        if call.future.cancelled():
            with suppress(RuntimeError):
                call.future.set_running_or_notify_cancel()
        settle(call.future, give)

    def _died(self, call: Call, text: str) -> None:
        tried = f" (attempt {call.attempts} of {call.terms.retries + 1})"
        self._retry(call, WorkerDied(f"the worker ended during the call{tried}: {text}"))

    # Workers, as the gate tells.

    def admit(self, hello: Hello, link: WorkerLink) -> str:
        """Take a worker; refuse one that runs another Python."""
        problem = same_python(hello)
        worker = self._board.workers.get(hello.task_id)
        if problem:
            self._break(ClusterBroken(problem))
            return problem
        if worker is None or hello.task_id in self._links:
            return "the executor does not wait for this worker"
        self._links[hello.task_id] = link
        setup = (remote.SETUP, self._settings.max_bytes, self._settings.setup)
        self._loop.call_soon(link.send, setup)
        return ""

    def on_frame(self, link: WorkerLink, kind: int, number: int, body: bytes) -> None:
        """Handle what a worker says."""
        with self._guarded():
            self._handle(link, kind, number, body)

    def on_read(self, link: WorkerLink) -> None:
        """Keep the worker busy, and then handle what it has answered."""
        assert link.hello is not None
        with self._guarded():
            worker = self._board.workers.get(link.hello.task_id)
            if worker is not None and worker.task_id in self._links:
                self._feed(worker)
            answers, self._answers = self._answers, []
            for call, kind, body in answers:
                if kind == remote.RESULT:
                    self._on_result(call, body)
                else:
                    self._on_error(call, body, link.hello.host)
            if answers and self._is_closed:
                self._wake()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """End the executor after a mistake of its own: no call may wait for ever."""
        try:
            yield
        except Exception as error:
            _LOGGER.exception("the executor failed")
            failure = ClusterBroken(f"the executor failed: {error!r}")
            for call, _, _ in self._answers:
                self._fail(call, failure)
            self._break(failure)

    def _handle(self, link: WorkerLink, kind: int, number: int, body: bytes) -> None:
        assert link.hello is not None
        task_id = link.hello.task_id
        worker = self._board.workers.get(task_id)
        if worker is None:
            return
        now = time.monotonic()
        if kind in (remote.RESULT, remote.ERROR):
            call = self._board.ended(worker, number, now)
            if call is not None:
                self._answers.append((call, kind, body))
        elif kind == remote.READY:
            self._starts.on_success()
            self._board.ready(worker, now)
            self._wake()
        elif kind == remote.GIVEN_BACK:
            self._board.given_back(worker, struct.unpack(f"!{len(body) // 8}Q", body))
            self._feed_idle(worker.shape)
            self._wake()
        elif kind == remote.SETUP_FAILED:
            self._failed_setups[task_id] = body.decode(errors="replace")
        elif kind == remote.DIED:
            self._on_died(worker, link.hello.host, number, death_of(body))

    def _on_died(self, worker: Worker, host: str, number: int, death: Death) -> None:
        if death.phase == "setup":
            raised = self._failed_setups.get(worker.task_id)
            reason = f"\n{raised.rstrip()}{output_text(death.output)}" if raised else f" {death}"
            self._break(ClusterBroken(f"a worker on {host} did not start:{reason}"))
            return
        call = worker.calls.pop(number, None)
        self._board.unready(worker)
        if call is not None:
            self._died(call, f"its process on {host} {death}")

    def on_closed(self, link: WorkerLink) -> None:
        """Handle the end of a worker's connection."""
        assert link.hello is not None
        task_id = link.hello.task_id
        if self._links.get(task_id) is link:
            del self._links[task_id]
        calls = self._board.lost(task_id)
        if calls:
            self._lost[task_id] = calls
            text = f"{link.hello.host} is lost: its connection ended"
            self._loop.call_later(REASON_S, self._settle_lost, task_id, text)
        self._wake()

    def _settle_lost(self, task_id: str, text: str) -> None:
        for call in self._lost.pop(task_id, ()):
            self._died(call, text)
        self._wake()

    # Workers, as the master tells.

    def _make_task(self, task_id: str, shape: Shape) -> Task:
        given = {
            "host": self._settings.reach.host,
            "port": self._port,
            "certificate": self._identity.certificate,
            "task": task_id,
            "token": self._identity.token(task_id),
            "unreachable": Launch.UNREACHABLE,
        }
        return self._settings.launch.task(task_id, shape, json.dumps(given))

    def on_placed(self, task_id: str, shape: Shape) -> None:
        """Handle the launch of a worker's task."""
        self._board.place(task_id, shape)

    def on_unplaced(self, task_id: str) -> None:
        """Handle a launch that had no effect."""
        self._forget(task_id)

    def on_task_ended(self, status: TaskStatus) -> None:
        """Handle the end of a worker's task."""
        task_id = status.task_id
        text = _text_of(status)
        link = self._links.get(task_id)
        if link is not None:
            # Its connection says how the calls end, or ends now.
            if status.state is not TaskState.FINISHED:
                self._loop.call_later(0.2, link.abort)
        elif task_id in self._board.workers:
            problem = self._starts.on_failure(status, text, self._settings.reach, time.monotonic())
            self._forget(task_id)
            if problem:
                self._break(ClusterBroken(problem))
        self._settle_lost(task_id, text)

    def on_preempted(self, task_ids: tuple[str, ...]) -> None:
        """End workers after the calls that they run."""
        for task_id in task_ids:
            worker, link = self._board.workers.get(task_id), self._links.get(task_id)
            if worker is None or link is None:
                continue
            self._board.leave(worker)
            link.send((remote.TAKE_BACK, 0, b""))
            self._leave_when_free(worker, link)

    def on_fleet_failed(self, error: CroupierError) -> None:
        """Handle an error after which no worker can be launched."""
        advice = ""
        if isinstance(error, InvalidRequest) and "secret" in str(error):
            advice = " (workers get their key as a secret of their task: see docs/futures.md)"
        self._break(ClusterBroken(f"cannot launch workers: {error}{advice}"))

    def _leave_when_free(self, worker: Worker, link: WorkerLink) -> None:
        if worker.calls:
            self._loop.call_later(TICK_S, self._leave_when_free, worker, link)
        elif self._links.get(worker.task_id) is link:
            link.send((remote.EXIT, 0, b""))

    def _forget(self, task_id: str) -> None:
        self._board.lost(task_id)
        self._wake()

    def _break(self, error: ClusterBroken) -> None:
        """End with an error, which all calls get."""
        with self._lock:
            if self._broken is not None:
                return
            self._broken = error
            actions, self._arrived = self._arrived, deque()
        for action in actions:
            action()
        calls = self._board.calls()
        calls += [call for lost in self._lost.values() for call in lost]
        self._lost.clear()
        for call in calls:
            self._fail(call, ClusterBroken(str(error)))
        self._wake()


def _text_of(status: TaskStatus) -> str:
    said = f": {status.message}" if status.message else ""
    return f"task {status.task_id} is {status.state.name} ({status.reason.name}){said}"
