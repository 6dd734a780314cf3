"""One batch of the master without I/O: decide events, name the records, list the effects.

The driver uses it as follows, and so do tests in virtual time:

    batch = Batch(state, on_decided)
    for _ in batch.decide(events, now):     # each turn of the loop is a moment to give way
        ...
    for _ in batch.allocate(now):           # at any time; `Driver` coalesces bursts
        ...
    commit(batch.records())                 # raises FailedOver once another master leads
    for effect in batch.effects:            # only after the commit, while this master leads
        perform(effect)

Rule: the caller performs no effect before the records are durable, and decides nothing else
while a commit is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from croupier.master.core.effects import Deposed, Effect, Pause, Save
from croupier.master.core.events import AllocationDue, TimePassed
from croupier.master.core.records import Record
from croupier.master.core.state import State
from croupier.master.core.step import Event, steps
from croupier.model.errors import FailedOver

OnDecided = Callable[[Event, float, Sequence[Effect]], None]

# About how many frameworks one slice of an allocation pass checks.
PASS_BUDGET = 1000


class Batch:
    """Events that are decided, committed and performed together.

    Attributes:
        effects: of all events decided so far, in order.
    """

    def __init__(self, state: State, on_decided: OnDecided) -> None:
        """Begin an empty batch; `on_decided` receives each event, its time and its effects."""
        self.effects: list[Effect] = []
        self._state, self._on_decided = state, on_decided

    def decide(
        self, events: Iterable[Event], now: float, *, may_expire: bool = True
    ) -> Iterator[None]:
        """Decide `events`, and before them the passed deadlines if `may_expire`.

        Yields:
            None, at each moment at which the caller may let other work run.
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
        """Return the records that must be durable before any effect is performed.

        Raises:
            FailedOver: if the core has learned that another master leads.
        """
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
