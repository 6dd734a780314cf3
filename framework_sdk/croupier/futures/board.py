"""The queue of calls, and the workers that run them. Pure: no clock, no I/O.

Rules: a worker gets calls of its own shape, in the order in which they were submitted. It gets a
call ahead of the one that it runs only while its calls are short, so that it does not wait for the
network between them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from croupier.futures.call import Call
from croupier.futures.shape import Shape

# Calls longer than this are handed out one by one.
SHORT_S: Final = 0.02
# Work that a worker holds beyond the call that it runs: at most this long, and this much.
AHEAD_S: Final = 0.005
MAX_AHEAD: Final = 16
MAX_AHEAD_BYTES: Final = 1 << 20
# After this long in one call, the calls behind it are taken back.
STUCK_S: Final = 0.1
# Functions that a worker keeps.
MAX_FUNCTIONS: Final = 32
_WEIGHT: Final = 0.2


@dataclass(slots=True, eq=False)
class Worker:
    """A worker, from the launch of its task to its end.

    Attributes:
        is_ready: whether it takes calls.
        is_leaving: whether it gets no more of them.
        calls: those that it holds; the first is the one that it runs.
        functions: numbers of those that it keeps, the latest used last.
        since: when it last began or ended a call, in seconds.
        mean_s: mean time of its calls; None before the first.
        is_asked: whether it was asked to give calls back.
    """

    task_id: str
    shape: Shape
    is_ready: bool = False
    is_leaving: bool = False
    calls: dict[int, Call] = field(default_factory=dict)
    functions: OrderedDict[int, None] = field(default_factory=OrderedDict)
    since: float = 0.0
    mean_s: float | None = None
    is_asked: bool = False

    def keep(self, function: int) -> tuple[bool, int | None]:
        """Record a use; return whether to send the function, and which one to drop for it."""
        if function in self.functions:
            self.functions.move_to_end(function)
            return False, None
        self.functions[function] = None
        if len(self.functions) <= MAX_FUNCTIONS:
            return True, None
        return True, self.functions.popitem(last=False)[0]


class Board:
    """All calls that are not over, and all workers."""

    def __init__(self, max_workers: int) -> None:
        self.max_workers = max_workers
        self.workers: dict[str, Worker] = {}
        self._waiting: dict[Shape, OrderedDict[int, Call]] = {}
        # Ready workers without calls; the one that was used last is taken first.
        self._idle: dict[Shape, dict[str, Worker]] = {}

    @property
    def waiting(self) -> int:
        """Number of calls that no worker has."""
        return sum(map(len, self._waiting.values()))

    @property
    def running(self) -> int:
        """Number of calls that workers have."""
        return sum(len(worker.calls) for worker in self.workers.values())

    def calls(self) -> list[Call]:
        """Return all calls."""
        held = [call for worker in self.workers.values() for call in worker.calls.values()]
        return held + self.waiting_calls()

    def waiting_calls(self) -> list[Call]:
        """Return the calls that no worker has."""
        return [call for queue in self._waiting.values() for call in queue.values()]

    def add(self, call: Call) -> None:
        """Queue a new call."""
        self._waiting.setdefault(call.terms.shape, OrderedDict())[call.number] = call

    def put_back(self, calls: Iterable[Call]) -> None:
        """Queue calls again, before all others."""
        for call in reversed(list(calls)):
            call.future.wait_again()
            self.add(call)
            self._waiting[call.terms.shape].move_to_end(call.number, last=False)

    def drop(self, call: Call) -> tuple[bool, Worker | None]:
        """Forget a cancelled call; return whether it was known, and the worker that has it."""
        queue = self._waiting.get(call.terms.shape)
        if queue and queue.pop(call.number, None):
            return True, None
        for worker in self.workers.values():
            if worker.calls.pop(call.number, None):
                self._rest(worker)
                return True, worker
        return False, None

    def missing(self) -> dict[Shape, int]:
        """Return how many further workers of each shape are wanted."""
        room = self.max_workers - len(self.workers)
        wanted: dict[Shape, int] = {}
        for shape, queue in self._waiting.items():
            if not queue:
                continue
            own = [worker for worker in self.workers.values() if worker.shape == shape]
            busy = sum(len(worker.calls) for worker in own)
            have = sum(not worker.is_leaving for worker in own)
            count = min(len(queue) + busy - have, room)
            if count > 0:
                wanted[shape] = count
                room -= count
        return wanted

    def place(self, task_id: str, shape: Shape) -> Worker:
        """Record the task of a new worker."""
        worker = self.workers[task_id] = Worker(task_id, shape)
        return worker

    def ready(self, worker: Worker, now: float) -> None:
        """Record that a worker takes calls."""
        worker.is_ready, worker.since = True, now
        self._rest(worker)

    def unready(self, worker: Worker) -> None:
        """Record that a worker starts its child again."""
        worker.is_ready = False
        self._idle.get(worker.shape, {}).pop(worker.task_id, None)

    def leave(self, worker: Worker) -> None:
        """Give a worker no more calls."""
        worker.is_leaving = True
        self._idle.get(worker.shape, {}).pop(worker.task_id, None)

    def next_calls(self, worker: Worker, now: float) -> list[Call]:
        """Hand the next calls to a worker: several if they are short."""
        queue = self._waiting.get(worker.shape)
        if not queue or not worker.is_ready or worker.is_leaving:
            return []
        room = self._depth(worker, len(queue)) - len(worker.calls)
        if room <= 0:
            return []
        size = sum(call.size for call in worker.calls.values())
        handed: list[Call] = []
        while queue and room > 0 and (size < MAX_AHEAD_BYTES or not worker.calls):
            number, call = queue.popitem(last=False)
            if not call.future.begin():
                continue
            if worker.calls and size + call.size > MAX_AHEAD_BYTES:
                self.put_back([call])
                break
            if not worker.calls:
                worker.since = now
            call.attempts += 1
            worker.calls[number] = call
            size += call.size
            room -= 1
            handed.append(call)
        if worker.calls:
            self._idle.get(worker.shape, {}).pop(worker.task_id, None)
        return handed

    def idle_for(self, shape: Shape) -> Worker | None:
        """Return a worker without calls, the one that was used last; None if there is none."""
        idle = self._idle.get(shape)
        return idle[next(reversed(idle))] if idle else None

    def ended(self, worker: Worker, number: int, now: float) -> Call | None:
        """Record the end of a call; return the call, None if it was dropped before."""
        call = worker.calls.pop(number, None)
        taken = now - worker.since
        mean = worker.mean_s
        worker.mean_s = taken if mean is None else mean + _WEIGHT * (taken - mean)
        worker.since = now
        self._rest(worker)
        return call

    def given_back(self, worker: Worker, numbers: Iterable[int]) -> None:
        """Queue the calls again that a worker has not begun."""
        worker.is_asked = False
        calls = [worker.calls.pop(number) for number in numbers if number in worker.calls]
        for call in calls:
            call.attempts -= 1
        self.put_back(calls)
        self._rest(worker)

    def lost(self, task_id: str) -> list[Call]:
        """Forget a worker; return the calls that it had."""
        worker = self.workers.pop(task_id, None)
        if worker is None:
            return []
        self._idle.get(worker.shape, {}).pop(task_id, None)
        return list(worker.calls.values())

    def stuck(self, now: float) -> list[Worker]:
        """Return workers in a long call that hold others behind it, each once."""
        found = [
            worker
            for worker in self.workers.values()
            if len(worker.calls) > 1 and not worker.is_asked and now - worker.since > STUCK_S
        ]
        for worker in found:
            worker.is_asked, worker.mean_s = True, now - worker.since
        return found

    def surplus(self, now: float, idle_s: float) -> list[Worker]:
        """Return idle workers that are not needed: idle for long, or in the way of others."""
        is_full = len(self.workers) >= self.max_workers
        starved = is_full and any(
            queue and not any(worker.shape == shape for worker in self.workers.values())
            for shape, queue in self._waiting.items()
        )
        return [
            worker
            for idle in self._idle.values()
            for worker in idle.values()
            if starved or now - worker.since >= idle_s
        ]

    def _depth(self, worker: Worker, waiting: int) -> int:
        mean = worker.mean_s
        if mean is None or mean > SHORT_S:
            return 1
        ready = sum(each.is_ready and each.shape == worker.shape for each in self.workers.values())
        ahead = min(MAX_AHEAD, int(AHEAD_S / max(mean, 1e-6)) + 1)
        return 1 + min(ahead, waiting // max(ready, 1))

    def _rest(self, worker: Worker) -> None:
        if worker.is_ready and not worker.calls and not worker.is_leaving:
            self._idle.setdefault(worker.shape, {})[worker.task_id] = worker


@dataclass(frozen=True, slots=True)
class Progress:
    """A count of calls and workers; a chunk of a map is one call.

    Attributes:
        waiting: calls that no worker has.
        running: calls that workers have.
        done: calls with a result.
        failed: calls with an exception, and cancelled ones that had begun.
        retried: further attempts at calls.
        workers: workers that take calls.
        starting: workers that were launched and do not take calls yet.
    """

    waiting: int
    running: int
    done: int
    failed: int
    retried: int
    workers: int
    starting: int
