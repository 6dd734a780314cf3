"""Leader election. A single master always leads; several elect one of them.

Rule: leadership is a *term*, with a beginning and an end. A deposed leader leads again only after
a new election, and starts from the store.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from croupier.net.address import Address


class Election(Protocol):
    """One master's part in the election of a leader."""

    @property
    def leader(self) -> str | None:
        """HOST:PORT of the leader; None if it is not known."""

    @property
    def is_won(self) -> bool:
        """Whether this master can prove that it leads now; asked before each effect."""

    async def win(self) -> None:
        """Wait until this master leads; without a deadline."""

    async def lost(self) -> None:
        """Wait until this master no longer leads, or can no longer prove it."""

    async def resign(self) -> None:
        """Give up leadership, so that the next leader need not wait for the lease to expire."""

    async def close(self) -> None:
        """Close everything. The election cannot be used again."""


class SoleElection:
    """The election of a single master, which has always won."""

    def __init__(self, address: Address) -> None:
        self._address = address

    @property
    def leader(self) -> str | None:
        """HOST:PORT of the only master."""
        return str(self._address)

    @property
    def is_won(self) -> bool:
        """Always."""
        return True

    async def win(self) -> None:
        """Return at once."""

    async def lost(self) -> None:
        """Never return."""
        await asyncio.Event().wait()

    async def resign(self) -> None:
        """Do nothing: there is no other master."""

    async def close(self) -> None:
        """Do nothing: nothing is open."""
