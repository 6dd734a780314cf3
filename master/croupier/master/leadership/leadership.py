"""Leadership: the current term of this master, or the address of the leader.

Rule: every question goes to the term that is current at that moment, and to no other.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from croupier.master.access.caller import current_call
from croupier.master.core.events import Question
from croupier.master.core.state import State
from croupier.master.eventlog.recorder import FileRecorder
from croupier.master.leadership.ha_backend import Election
from croupier.master.leadership.term import Term
from croupier.model.errors import NotLeader
from croupier.net.address import Address

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LatestTerm:
    """The latest term of this master, which may have ended.

    Attributes:
        began_ms: in milliseconds since the epoch.
    """

    master_id: str = ""
    epoch: int = 0
    began_ms: int = 0


class Leadership:
    """The current term of this master, if it leads.

    Attributes:
        address: where peers find this master.
        current: the current term; None while this master follows.
        terms: how many terms have begun here.
        latest: the latest of them.
    """

    def __init__(self, election: Election, address: Address) -> None:
        self.address, self.terms = address, 0
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

    def begin(self, term: Term, now_ms: int) -> None:
        """Make `term` the current one; `now_ms`: milliseconds since the epoch."""
        self.current = term
        self.latest = LatestTerm(term.driver.state.master_id, term.epoch, now_ms)
        self.terms += 1

    def end(self) -> None:
        """Become a follower."""
        self.current = None

    def term(self) -> Term:
        """Return the current term.

        Raises:
            NotLeader: if another master leads, or none does.
        """
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
        """Ask the current term as by `Driver.ask`.

        Raises:
            CroupierError: if that is the answer, there is no term, or it ends meanwhile.
        """
        return await self.term().driver.ask(make_event)

    async def read(self, query: Callable[[State], T]) -> T:
        """Read the state of the current term as by `Driver.read`; count the time for the caller.

        Raises:
            CroupierError: as for `ask`.
        """
        call = current_call()

        def timed(state: State) -> T:
            begun = time.perf_counter()
            try:
                return query(state)
            finally:
                call.read_s += time.perf_counter() - begun

        return await self.term().driver.read(timed)

    def _leader_text(self) -> str:
        if self._election.leader == str(self.address):
            return "this master is about to lead"
        return f"{self.leader} leads" if self.leader else "no master leads now"
