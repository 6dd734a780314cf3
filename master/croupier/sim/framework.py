"""A simulated framework: it takes offers for its work, or submits it, and acknowledges updates."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, islice

from croupier.master.core import calls, messages
from croupier.master.core.effects import SessionId
from croupier.master.core.events import FrameworkCalled, Received, Subscribe
from croupier.model.demand import MAX_SHAPES, Demand
from croupier.model.errors import CroupierError
from croupier.model.gang import GangMember
from croupier.model.ids import AgentId, FrameworkId, OfferId, Role, TaskId
from croupier.model.limits import MAX_NAMED, MAX_TASKS_PER_ACCEPT
from croupier.model.resources import NOTHING, Resources
from croupier.model.task import Command, TaskInfo, TaskState, TaskStatus
from croupier.model.verdict import Verdict
from croupier.sim.gpus import GpuPlaces
from croupier.sim.kernel import Kernel
from croupier.sim.work import Shape, Work

_COMMAND = Command(argv=("work",))
# The master keeps each verdict until the framework confirms that it has arrived.
_CALLS_BETWEEN_HEARTBEATS = 256
# After which tasks that were refused are submitted again.
_PAUSE_S = 60.0
_FAILOVER_S = 365 * 24 * 3600.0
# An empty demand asks for any offer, so an idle framework demands 0 units.
_IDLE = Demand(Resources.parse("cpus:1"), 0)

TaskKey = tuple[FrameworkId, TaskId]
Ended = Callable[[Work], None]


@dataclass(frozen=True, slots=True)
class Habits:
    """The behaviour of a framework.

    Attributes:
        declares: whether it declares demand; if not it is offered whole remainders, and
            suppresses offers while it has no work.
        max_per_offer: the most tasks of a shape in one offer; None means no bound.
        refuse_s: the filter of declined offers; None is the master's default.
        submits: whether it submits its work instead, and takes no offers.
    """

    declares: bool = True
    max_per_offer: int | None = None
    refuse_s: float | None = None
    submits: bool = False


class SimulatedFramework:
    """One framework's scheduler.

    Attributes:
        framework_id: empty until the master assigned one.
        has_left: whether it has left, or will at this instant.
        held: the resources of its running tasks, in thousandths, by name.
        refused: the number of calls that the master refused.
        error: the error by which the master ended the last session, if it did.
    """

    def __init__(
        self,
        kernel: Kernel,
        name: str,
        role: Role,
        works: dict[TaskKey, Work],
        habits: Habits | None = None,
        on_end: Ended | None = None,
        places: GpuPlaces | None = None,
    ) -> None:
        """Create a framework that is not connected. Agents find the work of its tasks in `works`.

        `on_end` is called with each work that has finished. `places` limits placement; without it,
        a task may use any offer with room.
        """
        self.kernel = kernel
        self.name = name
        self.role = role
        self.framework_id = FrameworkId("")
        self.held: dict[str, int] = {}
        self.declined = 0
        self.refused = 0
        self.error: CroupierError | None = None
        self._works = works
        self._habits = habits or Habits()
        self._on_end = on_end
        self._places = places
        self._session: SessionId | None = None
        self._seqs = count(1)
        self._task_numbers = count(1)
        self._waiting: dict[Shape, deque[Work]] = {}
        self._submitted: dict[TaskId, Work] = {}
        self._running: dict[TaskId, Work] = {}
        self._offers: dict[OfferId, messages.Offered] = {}
        self._to_acknowledge: list[tuple[AgentId, TaskId, int]] = []
        self._demand_changed = False
        self.has_left = False

    @property
    def waiting(self) -> int:
        """The number of tasks that were not launched."""
        return len(self._submitted) + sum(map(len, self._waiting.values()))

    @property
    def running(self) -> int:
        """The number of launched tasks that have not ended."""
        return len(self._running)

    def submitted(self, task_id: TaskId) -> Work:
        """Return the work of a task that was submitted and has not started."""
        return self._submitted[task_id]

    def connect(self) -> None:
        """Subscribe."""
        self._session = self.kernel.open_session(self)
        # Reset before the step: its answer has missed updates, after which lost tasks wait again.
        self._demand_changed = self._habits.submits
        self.kernel.step(
            Subscribe(
                self._session,
                self.framework_id,
                self.name,
                (self.role,),
                self.name,
                _FAILOVER_S,
                demands=self._demands(),
                suppressed=self._habits.submits
                or (not self._habits.declares and not self._waiting),
            )
        )

    def submit(self, works: Iterable[Work]) -> None:
        """Add work."""
        for work in works:
            work.submitted_at = self.kernel.now
            self._wait(work)

    def withdraw(self) -> None:
        """Drop the work that was not launched; what was submitted stays queued."""
        self._waiting.clear()
        self._demand_changed = True
        self.kernel.will_send(self)

    def leave(self) -> None:
        """Tear the framework down; the master kills what runs."""
        self.has_left = True
        self.kernel.will_send(self)

    def take(self, message: messages.ToAgent | messages.ToFramework) -> None:
        """See `Peer`."""
        match message:
            case messages.Updated(statuses) | messages.Placed(_, statuses):
                for status in statuses:
                    self._on_status(status)
                self.kernel.will_send(self)
            case messages.Offered():
                self._on_offer(message)
            case Verdict():
                self._on_verdict(message)
            case messages.Rescinded(offer_id):
                self._offers.pop(offer_id, None)
            case messages.Subscribed(framework_id):
                self.framework_id = framework_id
            case _:
                pass

    def send(self) -> None:
        """Acknowledge updates, answer offers, declare demand."""
        if self._session is None:
            return
        while self._to_acknowledge:
            part = tuple(self._to_acknowledge[:MAX_NAMED])
            del self._to_acknowledge[:MAX_NAMED]
            self._call(calls.Acknowledge(part))
        if self.has_left:
            self._call(calls.Teardown())
            return
        if self._offers:
            self._answer()
        if self._demand_changed:
            self._demand_changed = False
            self._declare_demand()

    def closed(self, error: CroupierError | None) -> None:
        """Connect again at once, unless it is leaving."""
        self._session = None
        self.error = error
        self._offers.clear()
        if not self.has_left:
            self.kernel.at(self.kernel.now, self.connect)

    # Demand.

    def _wait(self, work: Work) -> None:
        self._waiting.setdefault(work.shape, deque()).append(work)
        self._demand_changed = True
        self.kernel.will_send(self)

    def _demands(self) -> tuple[Demand, ...]:
        if self._habits.submits or not self._habits.declares:
            return ()
        shapes = list(self._waiting.items())[:MAX_SHAPES]
        most = self._habits.max_per_offer
        return tuple(shape.demand(len(works), most) for shape, works in shapes) or (_IDLE,)

    def _declare_demand(self) -> None:
        if self._habits.submits:
            self._submit_all()
        elif self._habits.declares:
            self._call(calls.UpdateDemand(self._demands()))
        elif self._waiting:
            self._call(calls.Revive())
        else:
            self._call(calls.Suppress())

    def _submit_all(self) -> None:
        works = list(chain.from_iterable(self._waiting.values()))
        self._waiting.clear()
        gangs = dict.fromkeys(work.gang for work in works if work.gang and work.gang.is_whole)
        for gang in gangs:
            self._call(calls.Submit(tuple(map(self._task_of, gang.works))))
        alone = [work for work in works if work.gang not in gangs]
        for first in range(0, len(alone), MAX_TASKS_PER_ACCEPT):
            part = alone[first : first + MAX_TASKS_PER_ACCEPT]
            self._call(calls.Submit(tuple(map(self._task_of, part))))

    def _task_of(self, work: Work) -> TaskInfo:
        task_id = TaskId(f"{self.name}-{next(self._task_numbers)}")
        self._submitted[task_id] = self._works[self.framework_id, task_id] = work
        member, gang = None, work.gang
        if gang is not None and gang.is_whole:
            member = GangMember(gang.name, gang.works.index(work), len(gang.works))
        declared_ms = round(work.declared_s * 1000)
        return TaskInfo(
            task_id, _COMMAND, work.shape.ask, gang=member, max_completion_ms=declared_ms
        )

    # Offers.

    def _on_offer(self, offer: messages.Offered) -> None:
        self._offers[offer.offer_id] = offer
        self.kernel.will_send(self)

    def _answer(self) -> None:
        """Launch tasks on the offers of each agent; decline offers that stay unused."""
        by_agent: dict[AgentId, list[messages.Offered]] = {}
        for offer in self._offers.values():
            by_agent.setdefault(offer.agent.agent_id, []).append(offer)
        self._offers.clear()
        unused: list[OfferId] = []
        for agent_id, offers in by_agent.items():
            offer_ids = tuple(offer.offer_id for offer in offers)
            works = self._choose(agent_id, offers)
            if works:
                self._launch(offer_ids, works)
            else:
                unused += offer_ids
        if unused:
            self.declined += len(unused)
            self._call(calls.Decline(tuple(unused), self._habits.refuse_s))

    def _choose(self, agent_id: AgentId, offers: list[messages.Offered]) -> list[Work]:
        """Remove and return as much waiting work as fits on the offers."""
        left = NOTHING
        for offer in offers:
            left = left + offer.resources
        chosen: list[Work] = []
        for shape, waiting in list(self._waiting.items()):
            number = shape.ask.units_within(
                left, min(len(waiting), MAX_TASKS_PER_ACCEPT - len(chosen))
            )
            if not number:
                continue
            if self._places is not None:
                number = self._places.take(agent_id, list(islice(waiting, number)))
            chosen += [waiting.popleft() for _ in range(number)]
            if number:
                left = left - shape.ask.carve(left, number)
            if not waiting:
                del self._waiting[shape]
        return chosen

    def _launch(self, offer_ids: tuple[OfferId, ...], works: list[Work]) -> None:
        tasks = []
        for work in works:
            task_id = TaskId(f"{self.name}-{next(self._task_numbers)}")
            self._works[self.framework_id, task_id] = work
            self._run(task_id, work)
            tasks.append(TaskInfo(task_id, _COMMAND, work.shape.ask))
        self._call(calls.Accept(offer_ids, tuple(tasks), self._habits.refuse_s))
        if not self._habits.declares and not self._waiting:
            self._demand_changed = True

    def _on_verdict(self, verdict: Verdict) -> None:
        self.refused += verdict.error is not None
        for each in verdict.tasks:
            if each.error is not None:
                task_id = TaskId(each.task_id)
                self._works.pop((self.framework_id, task_id), None)
                self._run(task_id, self._submitted.pop(task_id, None))
                work = self._ended(task_id)
                if self._habits.submits:
                    # Such as too many kinds of queued tasks: at once it would be refused again.
                    self.kernel.at(self.kernel.now + _PAUSE_S, partial(self._wait, work))
                else:
                    self._wait(work)

    # Tasks.

    def _run(self, task_id: TaskId, work: Work | None) -> None:
        if work is not None:
            self._running[task_id] = work
            self._hold(work.shape.ask, 1)

    def _on_status(self, status: TaskStatus) -> None:
        if status.needs_acknowledgement:
            self._to_acknowledge.append((status.agent_id, status.task_id, status.sequence))
        self._run(status.task_id, self._submitted.pop(status.task_id, None))
        if not status.state.is_terminal or status.task_id not in self._running:
            return
        work = self._ended(status.task_id)
        if status.state is not TaskState.FINISHED and not self.has_left:
            self._wait(work)
        elif self._on_end is not None:
            self._on_end(work)

    def _ended(self, task_id: TaskId) -> Work:
        work = self._running.pop(task_id)
        self._hold(work.shape.ask, -1)
        if self._places is not None:
            self._places.give_back(work)
        return work

    def _hold(self, ask: Resources, times: int) -> None:
        for name, milli in ask.scalars.items():
            self.held[name] = self.held.get(name, 0) + times * milli

    def _call(self, call: calls.Call) -> None:
        if self._session is None:
            return
        seq = next(self._seqs)
        self.kernel.step(FrameworkCalled(self._session, seq, call))
        if seq % _CALLS_BETWEEN_HEARTBEATS == 0 and self._session is not None:
            self.kernel.step(Received(self._session, seq))
