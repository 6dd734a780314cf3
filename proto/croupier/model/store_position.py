"""Positions in the history of a cluster's store, which reveal a store that was rolled back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from croupier.model.errors import InvalidRequest

# The first is reached in 136 years at one term a second, and the second in 285 years at a million
# commits a second.
MAX_EPOCH: Final = 2**32
MAX_COMMIT: Final = 2**53
MAX_NAME: Final = 64


@dataclass(frozen=True, slots=True)
class StorePosition:
    """The position of a store when a master sent it.

    Attributes:
        generation: the number of times that an operator continued with an older store.
        epoch: the number of the master's term.
        term: the random name of the term, which distinguishes two terms of one number.
        commit: the number of a durable commit, counted over the life of the cluster.
        proof: made with the secret of the cluster, in hexadecimal; empty if there is none.
    """

    generation: int
    epoch: int
    term: str
    commit: int
    proof: str = field(default="", repr=False)

    def check(self) -> None:
        """Raise InvalidRequest if no master can have sent the position."""
        check_epoch(self.epoch)
        check_epoch(self.generation)
        if not 0 <= self.commit <= MAX_COMMIT:
            raise InvalidRequest(f"{self.commit} is not a possible number of commits of a store")
        if max(len(self.term), len(self.proof)) > MAX_NAME:
            raise InvalidRequest("the position of the store is malformed")

    @property
    def rank(self) -> tuple[int, int, int]:
        """Sort key of the positions of one history."""
        return self.generation, self.epoch, self.commit

    def __str__(self) -> str:
        given_up = f" of generation {self.generation}" if self.generation else ""
        return f"commit {self.commit} of epoch {self.epoch}{given_up}"


def check_epoch(epoch: int) -> int:
    """Return `epoch` if so many masters can have led a cluster; raises InvalidRequest if not."""
    if not 0 <= epoch <= MAX_EPOCH:
        raise InvalidRequest(f"{epoch} is not a possible epoch")
    return epoch
