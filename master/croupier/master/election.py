"""Who leads. One master alone always does; of several, the one that was elected.

Rule: leadership is a *term*, with a beginning and an end. Whoever led once leads again only
by a new election, and starts from what the store holds.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from croupier.net.address import Address


class Election(Protocol):
    """One master's part in choosing who leads."""

    @property
    def leader(self) -> str | None:
        """HOST:PORT of the master that leads, as far as is known here."""
        ...

    @property
    def is_won(self) -> bool:
        """Whether this master provably leads at this very moment; asked before each effect."""
        ...

    async def win(self) -> None:
        """Wait until this master leads, however long that takes."""
        ...

    async def lost(self) -> None:
        """Wait until it does no more, or cannot be sure of it."""
        ...

    async def resign(self) -> None:
        """Give up leadership, if it has it, soon: another need not wait for the lease to end."""
        ...

    async def close(self) -> None:
        """Let go of everything. The election cannot be used again."""
        ...


class SoleElection:
    """There is only one master: it has won."""

    def __init__(self, address: Address) -> None:
        """`address` is where it is found."""
        self._address = address

    @property
    def leader(self) -> str | None:
        """This master."""
        return str(self._address)

    @property
    def is_won(self) -> bool:
        """Always."""
        return True

    async def win(self) -> None:
        """At once."""

    async def lost(self) -> None:
        """Never returns."""
        await asyncio.Event().wait()

    async def resign(self) -> None:
        """To nobody."""

    async def close(self) -> None:
        """Nothing to let go of."""
