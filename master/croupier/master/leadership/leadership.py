"""Leadership: the current term of this master, or the address of the leader; and its terms in turn.

A master leads whenever it is elected: `Terms.run` decides a failover, and `term.begin_term` begins
what follows.

Rule: every question goes to the term that is current at that moment, and to no other.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from croupier.master.access.caller import current_call
from croupier.master.core.effects import PAUSE, Pause
from croupier.master.core.events import Query, Question
from croupier.master.core.state import State
from croupier.master.eventlog.recorder import FileRecorder
from croupier.master.leadership.ha_backend import Election, HaBackend
from croupier.master.leadership.term import Overtaken, Term, TermSetting, begin_term
from croupier.model.errors import CroupierError, FailedOver, NotLeader, Unavailable
from croupier.model.store_position import StorePosition
from croupier.net.address import Address
from croupier.net.backoff import Backoff
from croupier.net.task_scope import end
from croupier.process.garbage import thaw
from croupier.process.logging import get_logger

T = TypeVar("T")

# A resignation must not delay the next leader; the lease ends by itself.
RESIGN_S = 2.0
# Pause after a failed term, since a store may fail each time.
RETRY_S = 0.2
RETRY_CAP_S = 5.0

_log = get_logger("croupier.master")


@dataclass(frozen=True, slots=True)
class LatestTerm:
    """The latest term of this master, which may have ended; `began_ms` counts from 1970."""

    master_id: str = ""
    epoch: int = 0
    began_ms: int = 0


class Leadership:
    """The current term of this master, if it leads.

    Attributes:
        address: where peers find this master.
        current: the current term; None while this master follows.
        terms_begun: how many terms have begun here.
        latest: the latest of them.
    """

    def __init__(self, election: Election, address: Address) -> None:
        self.address, self.terms_begun = address, 0
        self.current: Term | None = None
        self.latest = LatestTerm()
        self._election = election

    @property
    def is_leader(self) -> bool:
        """Whether this master leads."""
        return self.current is not None

    @property
    def leader(self) -> str:
        """HOST:PORT of the master that leads and serves; empty if there is none, or none known."""
        if self.is_leader:
            return str(self.address)
        known = self._election.leader or ""
        # While this master is elected but still recovers, no master serves.
        return "" if known == str(self.address) else known

    @property
    def state(self) -> State | None:
        """The state of the current term; None while this master follows."""
        return None if self.current is None else self.current.driver.state

    def begin(self, term: Term, now_ms: int) -> None:
        """Make `term` the current one; `now_ms`: milliseconds since the epoch."""
        self.current = term
        self.latest = LatestTerm(term.driver.state.master_id, term.epoch, now_ms)
        self.terms_begun += 1

    def end(self) -> None:
        """Become a follower."""
        self.current = None

    def term(self) -> Term:
        """Return the current term; raises NotLeader if another master leads, or none does."""
        if self.current is None:
            raise self.refusal()
        return self.current

    def recorder(self) -> FileRecorder | None:
        """Return the event log of the current term, if it keeps one."""
        return None if self.current is None else self.current.recorder

    def refusal(self) -> NotLeader:
        """Return the error that peers get while this master follows."""
        return NotLeader(f"not the leader; {self._leader_text()}", self.leader)

    def unready_reason(self) -> str | None:
        """Return why this master does not serve; None if it does."""
        # For anyone, so it does not name the leader.
        if self.is_leader:
            return None
        return "a follower; " + ("another master leads" if self.leader else self._leader_text())

    async def ask(self, make_event: Callable[[int], Question[T]]) -> T:
        """Ask the current term as by `Driver.ask`; raises CroupierError also without a term."""
        return await self.term().driver.ask(make_event)

    async def read(self, query: Query[T]) -> T:
        """Read the state as by `Driver.read`; count the time for the caller. Raises as `ask`."""
        call = current_call()

        def timed(state: State) -> Generator[Pause, None, T]:
            begun = time.perf_counter()
            try:
                result = query(state)
                while isinstance(result, Generator):
                    try:
                        next(result)
                    except StopIteration as end:
                        result = end.value
                    else:
                        call.read_s += time.perf_counter() - begun
                        yield PAUSE
                        begun = time.perf_counter()
                return result
            finally:
                call.read_s += time.perf_counter() - begun

        return await self.term().driver.read(timed)

    def _leader_text(self) -> str:
        if self._election.leader == str(self.address):
            return "this master is about to lead"
        return f"{self.leader} leads" if self.leader else "no master leads now"


class Terms:
    """Begins and ends terms; sets `first_began` once a term has begun."""

    def __init__(self, setting: TermSetting, ha_backend: HaBackend, leadership: Leadership) -> None:
        """Announce each term to `leadership`."""
        self.first_began = asyncio.Event()
        self._setting, self._ha_backend, self._leadership = setting, ha_backend, leadership
        self._clock = setting.clock
        self._term: Term | None = None
        self._overtaken_by: StorePosition | None = None

    async def run(self) -> NoReturn:
        """Lead whenever this master is elected, until cancelled.

        Raises CroupierError if the store cannot be read, or if there are no other masters and a
        term ends.
        """
        election, is_shared = self._ha_backend.election, self._ha_backend.is_shared
        backoff = Backoff(RETRY_S, RETRY_CAP_S, random.Random())
        while True:
            await election.win()
            won_at = self._clock.now()
            error = await self._lead_once()
            why = "failed_over" if isinstance(error, FailedOver) else "store_unavailable"
            self._setting.metrics.term_ended(why)
            if isinstance(error, Overtaken):
                # The next term compares its store with the position.
                self._overtaken_by = error.position
                if not is_shared:
                    continue
            elif not is_shared:
                raise error
            await resign(election)
            if self._clock.now() - won_at > RETRY_CAP_S:
                backoff.reset()
            wait_s = backoff.next_s()
            _log.warning(
                "term_ended",
                why=why,
                reason=str(error),
                leader=self._leadership.leader,
                retry_in_s=round(wait_s, 3),
            )
            await asyncio.sleep(wait_s)

    async def _lead_once(self) -> CroupierError:
        """Run one term, and return why it ended; raises the error after which none may follow."""
        serving = asyncio.create_task(self._serve(), name="term")
        lost = asyncio.create_task(self._ha_backend.election.lost(), name="election")
        tasks = (serving, lost)
        for task in tasks:
            task.add_done_callback(self._depose)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            try:
                await end(*tasks)
            finally:
                # Runs also if the master is stopped at this moment.
                await self._end()
        return _end_reason(serving, lost)

    async def _serve(self) -> None:
        election = self._ha_backend.election
        store = self._ha_backend.open_store()
        try:
            term = await begin_term(
                self._setting, store, lambda: election.is_won, self._overtaken_by
            )
        except BaseException:
            await store.close()
            raise
        self._term = term
        if not election.is_won:
            raise FailedOver("the election was lost before the term began")
        self._leadership.begin(term, self._clock.wall_ms())
        self.first_began.set()
        await term.serve()

    def _depose(self, ended: asyncio.Task[None]) -> None:
        """Depose the term in the same turn of the event loop in which it was lost."""
        if ended.cancelled():
            return
        if self._ha_backend.is_shared or isinstance(ended.exception(), Overtaken):
            self._leadership.end()
            if self._term is not None:
                self._term.depose(self._leadership.refusal())

    async def _end(self) -> None:
        self._leadership.end()
        term, self._term = self._term, None
        if term is not None:
            await term.end(Unavailable("the master is stopping"))
            # Its state has cycles.
            thaw()


async def resign(election: Election) -> None:
    """Resign in at most `RESIGN_S`; log a failure."""
    try:
        async with asyncio.timeout(RESIGN_S):
            await election.resign()
    except (CroupierError, TimeoutError) as error:
        _log.warning("resignation_failed", error=str(error) or "it took too long")


def _end_reason(serving: asyncio.Task[None], lost: asyncio.Task[None]) -> CroupierError:
    """Return why a term ended; raises the error after which no other term may begin."""
    if not serving.cancelled() and (error := serving.exception()) is not None:
        if isinstance(error, FailedOver | Unavailable):
            return error
        raise error
    if not lost.cancelled():
        lost.result()
    return FailedOver("the election was lost")
