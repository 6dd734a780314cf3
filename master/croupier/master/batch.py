"""One batch of the master without I/O: decide events, name the records, list the effects.

The driver uses it as follows, and so do tests in virtual time:

    batch = Batch(state, on_decided)
    for _ in batch.decide(events, now):     # each turn of the loop is a moment to give way
        ...
    for _ in batch.allocate(now):           # at any time; `Driver` coalesces bursts
        ...
    commit(batch.records())                 # raises FailedOver once another master leads
    for effects in in_turns(joined(batch.effects)):     # only after the commit, while it leads
        for effect in effects:
            perform(effect)

Rule: the caller performs no effect before the records are durable, and decides nothing else
while a commit is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import get_args

from croupier.master.core import calls
from croupier.master.core.effects import Close, Deposed, Effect, Pause, Save, Send, SessionId
from croupier.master.core.events import (
    AgentHealth,
    AgentReported,
    AllocationDue,
    FrameworkCalled,
    Register,
    Subscribe,
    TimePassed,
)
from croupier.master.core.messages import ToFramework, Updated
from croupier.master.core.records import Record
from croupier.master.core.state import State
from croupier.master.core.step import Event, steps
from croupier.model.errors import FailedOver
from croupier.model.limits import MAX_PER_REPORT

OnDecided = Callable[[Event, float, Sequence[Effect]], None]

_TO_FRAMEWORKS = frozenset(get_args(ToFramework))

# About how many frameworks one slice of an allocation pass checks.
PASS_BUDGET = 1000


class Batch:
    """Events that are decided, committed and performed together.

    `effects`: of all events decided so far, in order.
    """

    def __init__(self, state: State, on_decided: OnDecided) -> None:
        """Begin an empty batch; `on_decided` receives each event, its time and its effects."""
        self.effects: list[Effect] = []
        self._state, self._on_decided = state, on_decided

    def decide(
        self, events: Iterable[Event], now: float, *, may_expire: bool = True
    ) -> Iterator[None]:
        """Decide `events`, and before them the passed deadlines if `may_expire`.

        Yields None at each moment at which the caller may let other work run.
        """
        deadline = self._state.next_deadline()
        if may_expire and deadline is not None and deadline <= now:
            yield from self._step(TimePassed(), now)
        for event in events:
            yield from self._step(event, now)

    def allocate(self, now: float) -> Iterator[None]:
        """Run a slice of an allocation pass; yields as `decide` does."""
        return self._step(AllocationDue(PASS_BUDGET), now)

    def records(self) -> list[Record]:
        """Return the records to commit first; raises FailedOver if another master leads."""
        for effect in self.effects:
            if isinstance(effect, Deposed):
                raise FailedOver(effect.message)
        return [effect.record for effect in self.effects if isinstance(effect, Save)]

    def _step(self, event: Event, now: float) -> Iterator[None]:
        effects: list[Effect] = []
        try:
            for effect in steps(self._state, event, now):
                if not isinstance(effect, Pause):
                    effects.append(effect)
                yield
        except Exception:
            # The event log must hold the event that broke the core.
            self._on_decided(event, now, ())
            raise
        self._on_decided(event, now, effects)
        self.effects += effects


def joined(effects: Iterable[Effect]) -> list[Effect]:
    """Return `effects` with status updates that follow each other on a session as one message.

    So the states of a short task, and those of all tasks in an agent's report, are encoded, queued
    and read together. The order on each session stays.
    """
    made: list[Effect] = []
    latest: dict[SessionId, tuple[int, Updated]] = {}
    for effect in effects:
        if isinstance(effect, Send):
            session, message = effect.session, effect.message
            before = latest.pop(session, None)
            if isinstance(message, Updated):
                place = len(made)
                if before is not None and len(before[1].statuses) < MAX_PER_REPORT:
                    place, message = before[0], Updated(before[1].statuses + message.statuses)
                    effect = Send(session, message)
                latest[session] = place, message
                made[place : place + 1] = [effect]
                continue
        elif isinstance(effect, Close):
            latest.pop(effect.session, None)
        made.append(effect)
    return made


def in_turns(effects: Iterable[Effect]) -> tuple[list[Effect], list[Effect]]:
    """Return messages, those to agents first, and all other effects.

    Tasks wait for launch orders, and nothing for facts. The messages of each session keep their
    order, and a session ends after its messages.
    """
    orders: list[Effect] = []
    messages: list[Effect] = []
    others: list[Effect] = []
    for effect in effects:
        if not isinstance(effect, Send):
            others.append(effect)
        elif type(effect.message) in _TO_FRAMEWORKS:
            messages.append(effect)
        else:
            orders.append(effect)
    return orders + messages, others


def event_cost(event: Event) -> int:
    """Return the estimated cost in the core, in units of about 20 us, at least 1.

    So batches take about the same time.
    """
    match event:
        case FrameworkCalled():
            return 1 + _call_cost(event.call)
        case AgentReported(_, statuses):
            return 1 + len(statuses)
        case AgentHealth(_, _, refused):
            return 1 + 4 * len(refused)
        case Register():
            return 1 + len(event.tasks)
        case Subscribe():
            return 10 + len(event.roles) + 4 * len(event.demands)
        case _:
            return 1


def _call_cost(call: calls.Call) -> int:
    match call:
        case calls.Accept():
            return len(call.offer_ids) + 4 * len(call.tasks)
        case calls.Submit():
            return 4 * len(call.tasks)
        case calls.Withdraw():
            return 3 * len(call.task_ids)
        case calls.SendMessage():
            return 1 + len(call.data) // 4096
        case calls.Decline():
            return len(call.offer_ids)
        case calls.Acknowledge():
            return len(call.updates)
        case calls.Reconcile():
            # A call without ids asks for all tasks of the framework.
            return len(call.task_ids) // 2 or 100
        case calls.UpdateDemand():
            return 4 * len(call.demands)
        case calls.Malformed():
            return len(call.task_ids) // 4
        case _:
            return 0
