"""The one place where peers and operators find who decides: a term, or word of who leads.

Rule: whatever is asked is asked of the term that stands at that moment, and of no other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from croupier.master.core.events import Event
from croupier.master.core.state import State
from croupier.master.eventlog.recorder import FileRecorder
from croupier.master.leader import Election
from croupier.master.term import Term
from croupier.model.errors import NotLeader
from croupier.net.address import Address

T = TypeVar("T")


class Seat:
    """Empty while this master follows.

    Attributes:
        address: where others find this master.
        now: the term that stands; None while this master follows.
        terms: how many terms have begun here.
    """

    def __init__(self, election: Election, address: Address) -> None:
        """Begin as a follower."""
        self.address, self.terms = address, 0
        self.now: Term | None = None
        self._election = election

    @property
    def is_taken(self) -> bool:
        """Whether this master leads."""
        return self.now is not None

    @property
    def leader(self) -> str:
        """HOST:PORT of the master that leads and serves; empty if there is none, or none known."""
        if self.is_taken:
            return str(self.address)
        known = self._election.leader or ""
        # Elected, but still reading the registry.
        return "" if known == str(self.address) else known

    def take(self, term: Term) -> None:
        """`term` decides from now on."""
        self.now = term
        self.terms += 1

    def leave(self) -> None:
        """Nobody decides here any more."""
        self.now = None

    def term(self) -> Term:
        """Who decides.

        Raises:
            NotLeader: if another master leads, or none does.
        """
        if self.now is None:
            raise self.refusal()
        return self.now

    def recorder(self) -> FileRecorder | None:
        """Who keeps the event log of the term that stands, if anybody does."""
        return None if self.now is None else self.now.recorder

    def refusal(self) -> NotLeader:
        """What to tell whoever comes while this master follows."""
        return NotLeader(f"not the leader; {self._word()}", self.leader)

    def waits_for(self) -> str | None:
        """Why this master does not serve; None if it does."""
        return None if self.is_taken else f"a follower; {self._word()}"

    async def ask(self, make_event: Callable[[int], Event]) -> object:
        """As `Driver.ask`, of the term that stands.

        Raises:
            CroupierError: if that is the answer, or there is no term, or it ends meanwhile.
        """
        return await self.term().driver.ask(make_event)

    async def read(self, query: Callable[[State], T]) -> T:
        """As `Driver.read`, of the term that stands.

        Raises:
            CroupierError: as for `ask`.
        """
        return await self.term().driver.read(query)

    def _word(self) -> str:
        if self._election.leader == str(self.address):
            return "this master is about to lead"
        return f"{self.leader} leads" if self.leader else "no master leads now"
