"""A pretend framework: it has work, takes offers for it, and acknowledges what becomes of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count, islice
from random import Random
from typing import Protocol

from croupier.master.core import calls
from croupier.master.core.effects import SessionId
from croupier.master.core.events import FrameworkCalled, Heard, SessionEnded, Subscribe
from croupier.master.core.messages import (
    Offered,
    Rescinded,
    Subscribed,
    ToAgent,
    ToFramework,
    Updated,
    Verdict,
)
from croupier.master.core.on_accept import MAX_TASKS
from croupier.master.core.on_call import MAX_NAMED
from croupier.model.demand import MAX_SHAPES, Demand
from croupier.model.errors import CroupierError
from croupier.model.ids import AgentId, FrameworkId, OfferId, Role, TaskId
from croupier.model.resources import NOTHING, Resources
from croupier.model.task import Command, TaskInfo, TaskState, TaskStatus
from croupier.sim.kernel import Kernel
from croupier.sim.work import Shape, Work

_COMMAND = Command(argv=("work",))
# The master keeps each verdict until it hears that it has arrived.
_CALLS_BETWEEN_WORDS = 256
_FOR_EVER_S = 365 * 24 * 3600.0
# To declare nothing is to want anything, so who has nothing to do wants none of something.
_IDLE = Demand(Resources.parse("cpus:1"), 0)

TaskKey = tuple[FrameworkId, TaskId]
Ended = Callable[[Work], None]


class Places(Protocol):
    """What stands in the way of tasks that the master does not know of."""

    def take(self, agent_id: AgentId, works: Sequence[Work]) -> int:
        """Make room on an agent for the first works, as many as go there; how many did."""
        ...

    def give_back(self, work: Work) -> None:
        """What was taken for `work` is free again."""
        ...


@dataclass(frozen=True, slots=True)
class Habits:
    """How a framework behaves.

    Attributes:
        declares: whether it says what it wants; if not it is offered whole remainders, and
            asks for none while it has no work.
        think_s: how long it holds an offer before it answers.
        declines: how likely it declines an offer at whim, 0 to 1.
        max_per_offer: how many tasks of a shape it wants in one offer; None is any number.
        refuse_s: for how long it refuses what it declines; None is the master's default.
        tries: how often a task that was lost or failed is tried; the first counts.
    """

    declares: bool = True
    think_s: float = 0.0
    declines: float = 0.0
    max_per_offer: int | None = None
    refuse_s: float | None = None
    tries: int = 1000


class PretendFramework:
    """One framework's scheduler.

    Attributes:
        framework_id: empty until the master gave one.
        held: what its running tasks asked for, in thousandths, by resource.
        declined: how many offers it declined.
        refused: how many of its calls the master refused.
        error: why the master ended its session, if it did.
    """

    def __init__(
        self,
        kernel: Kernel,
        name: str,
        role: Role,
        works: dict[TaskKey, Work],
        rng: Random,
        habits: Habits | None = None,
        on_end: Ended | None = None,
        places: Places | None = None,
    ) -> None:
        """It is not there before `connect`.

        Args:
            kernel: its world.
            name: its name, unique in it.
            role: its role.
            works: where agents find what a task will do.
            rng: decides its whims.
            habits: how it behaves.
            on_end: told of each task that has ended for good.
            places: where tasks really go; None is anywhere on an offer that holds them.
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
        self._rng = rng
        self._habits = habits or Habits()
        self._on_end = on_end
        self._places = places
        self._session: SessionId | None = None
        self._seqs = count(1)
        self._task_numbers = count(1)
        self._said = 0
        self._waiting: dict[Shape, deque[Work]] = {}
        self._running: dict[TaskId, Work] = {}
        self._tries: dict[Work, int] = {}
        self._offers: dict[OfferId, Offered] = {}
        self._to_answer: list[OfferId] = []
        self._to_acknowledge: list[tuple[AgentId, TaskId, int]] = []
        self._launching: dict[int, list[TaskId]] = {}
        self._demand_changed = False
        self._leaving = False

    @property
    def has_left(self) -> bool:
        """Whether it has gone, or is about to."""
        return self._leaving

    @property
    def waiting(self) -> int:
        """How many tasks have not been launched."""
        return sum(map(len, self._waiting.values()))

    @property
    def running(self) -> int:
        """How many tasks were launched and have not ended."""
        return len(self._running)

    def connect(self) -> None:
        """Subscribe."""
        self._session = self.kernel.open_session(self)
        # Before the call: what it missed comes with the answer, and may have to run again.
        self._demand_changed = False
        self.kernel.tell(
            Subscribe(
                self._session,
                self.framework_id,
                self.name,
                (self.role,),
                self.name,
                _FOR_EVER_S,
                demands=self._demands(),
                suppressed=not self._habits.declares and not self._waiting,
            )
        )

    def disconnect(self) -> None:
        """Break the session; tasks run on."""
        if self._session is not None:
            session, self._session = self._session, None
            self._offers.clear()
            self._to_answer.clear()
            self.kernel.end_session(session)
            self.kernel.tell(SessionEnded(session, "it left"))

    def submit(self, works: Iterable[Work]) -> None:
        """Have more to do."""
        for work in works:
            work.submitted_at = self.kernel.now
            self._wait(work)

    def withdraw(self) -> None:
        """Have nothing more to do than what runs."""
        self._waiting.clear()
        self._demand_changed = True
        self.kernel.will_speak(self)

    def leave(self) -> None:
        """End for good; what runs is killed."""
        self._leaving = True
        self.kernel.will_speak(self)

    def beat(self) -> None:
        """Say that it is there."""
        if self._session is not None:
            self.kernel.tell(Heard(self._session, self._said))

    def take(self, message: ToAgent | ToFramework) -> None:
        """Take in a message from the master."""
        match message:
            case Updated(statuses):
                for status in statuses:
                    self._on_status(status)
                self.kernel.will_speak(self)
            case Offered(offer_id):
                self._on_offer(offer_id, message)
            case Verdict():
                self._on_verdict(message)
            case Rescinded(offer_id):
                self._offers.pop(offer_id, None)
            case Subscribed(framework_id):
                self.framework_id = framework_id
            case _:
                pass

    def speak(self) -> None:
        """Acknowledge, answer offers, say what is wanted."""
        if self._session is None:
            return
        while self._to_acknowledge:
            part = tuple(self._to_acknowledge[:MAX_NAMED])
            del self._to_acknowledge[:MAX_NAMED]
            self._call(calls.Acknowledge(part))
        if self._leaving:
            self._call(calls.Teardown())
            return
        if self._to_answer:
            self._answer()
        if self._demand_changed:
            self._demand_changed = False
            self._tell_demand()

    def closed(self, error: CroupierError | None) -> None:
        """The master has ended the session."""
        self._session = None
        self.error = error
        self._offers.clear()
        self._to_answer.clear()
        if not self._leaving:
            self.kernel.at(self.kernel.now, self.connect)

    # What is wanted.

    def _wait(self, work: Work) -> None:
        self._waiting.setdefault(work.shape, deque()).append(work)
        self._demand_changed = True
        self.kernel.will_speak(self)

    def _demands(self) -> tuple[Demand, ...]:
        if not self._habits.declares:
            return ()
        shapes = list(self._waiting.items())[:MAX_SHAPES]
        most = self._habits.max_per_offer
        return tuple(shape.demand(len(works), most) for shape, works in shapes) or (_IDLE,)

    def _tell_demand(self) -> None:
        if self._habits.declares:
            self._call(calls.UpdateDemand(self._demands()))
        elif self._waiting:
            self._call(calls.Revive())
        else:
            self._call(calls.Suppress())

    # Offers.

    def _on_offer(self, offer_id: OfferId, offer: Offered) -> None:
        self._offers[offer_id] = offer
        if self._habits.think_s > 0:
            self.kernel.at(self.kernel.now + self._habits.think_s, lambda: self._think(offer_id))
        else:
            self._think(offer_id)

    def _think(self, offer_id: OfferId) -> None:
        self._to_answer.append(offer_id)
        self.kernel.will_speak(self)

    def _answer(self) -> None:
        """Launch what goes on the offers of each agent; decline those of which nothing is used."""
        by_agent: dict[AgentId, list[Offered]] = {}
        for offer_id in self._to_answer:
            offer = self._offers.pop(offer_id, None)
            if offer is not None:
                by_agent.setdefault(offer.agent.agent_id, []).append(offer)
        self._to_answer.clear()
        unused: list[OfferId] = []
        for agent_id, offers in by_agent.items():
            offer_ids = tuple(offer.offer_id for offer in offers)
            works = [] if self._is_whim() else self._choose(agent_id, offers)
            if works:
                self._launch(offer_ids, works)
            else:
                unused += offer_ids
        if unused:
            self.declined += len(unused)
            self._call(calls.Decline(tuple(unused), self._habits.refuse_s))

    def _is_whim(self) -> bool:
        return self._habits.declines > 0 and self._rng.random() < self._habits.declines

    def _choose(self, agent_id: AgentId, offers: list[Offered]) -> list[Work]:
        """Take work out of what waits, as much as goes on the offers."""
        left = NOTHING
        for offer in offers:
            left = left + offer.resources
        chosen: list[Work] = []
        for shape, waiting in list(self._waiting.items()):
            number = shape.ask.units_within(left, min(len(waiting), MAX_TASKS - len(chosen)))
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
            self._running[task_id] = work
            self._works[self.framework_id, task_id] = work
            self._hold(work.shape.ask, 1)
            tasks.append(TaskInfo(task_id, _COMMAND, work.shape.ask))
        self._call(calls.Accept(offer_ids, tuple(tasks), self._habits.refuse_s))
        if not self._habits.declares and not self._waiting:
            self._demand_changed = True

    def _on_verdict(self, verdict: Verdict) -> None:
        self.refused += verdict.error is not None
        for each in verdict.tasks:
            if each.error is not None:
                self._works.pop((self.framework_id, each.task_id), None)
                self._wait(self._ended(each.task_id))

    # Tasks.

    def _on_status(self, status: TaskStatus) -> None:
        if status.needs_acknowledgement:
            self._to_acknowledge.append((status.agent_id, status.task_id, status.sequence))
        if not status.state.is_terminal or status.task_id not in self._running:
            return
        work = self._ended(status.task_id)
        if status.state is not TaskState.FINISHED:
            tries = self._tries.get(work, 1)
            if tries < self._habits.tries and not self._leaving:
                self._tries[work] = tries + 1
                self._wait(work)
                return
        self._tries.pop(work, None)
        if self._on_end is not None:
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
        self.kernel.tell(FrameworkCalled(self._session, seq, call))
        self._said = seq
        if seq % _CALLS_BETWEEN_WORDS == 0:
            self.beat()
