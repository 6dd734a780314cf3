"""The history of a cluster's store, and whether what an agent has heard belongs to it.

Each commit has a number, each term a random name. Masters state the newest commit to agents,
proven by the secret of the cluster, and agents state it back in REGISTER. A position that is
proven and not part of this history was made by a store that this one is an old copy of.

Rule: a claim without a proof deposes no master. The agent that makes it is refused.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from croupier.master.core.events import Claim
from croupier.master.core.records import MasterRecord, PastTerm
from croupier.model.store_position import StorePosition

# Terms that are remembered one by one; of older ones only how far the store had got.
MAX_TERMS: Final = 256
PROOF_BYTES: Final = 16


class Judgement(NamedTuple):
    """What a claim is worth, and for people why it is refused, if it is."""

    claim: Claim
    objection: str = ""


@dataclass(frozen=True, slots=True)
class Names:
    """Random names for a term to begin with: of a new cluster, its secret, and the term."""

    cluster: str
    secret: str
    term: str


def next_record(
    before: MasterRecord | None,
    commits: int,
    names: Names,
    given_up: StorePosition | None = None,
) -> MasterRecord:
    """The record of the term that follows.

    Args:
        before: the record of the last term; None begins a cluster.
        commits: how many commits the store has.
        names: random; those of the cluster are used only where it has none yet.
        given_up: a position beyond this store that an operator goes on without.
    """
    last = before or MasterRecord(names.cluster, 0)
    epoch, generation = last.epoch, last.generation
    if given_up is not None:
        epoch = max(epoch, given_up.epoch)
        generation = max(generation, given_up.generation) + 1
    begun = PastTerm(epoch + 1, names.term, commits)
    terms = (*last.terms, begun)[-MAX_TERMS:]
    return MasterRecord(last.cluster, epoch + 1, last.secret or names.secret, generation, terms)


class Lineage:
    """The history that the store of a term tells, and goes on with.

    Attributes:
        overtaken_by: the furthest proven position that is not part of it; None: there is none.
    """

    def __init__(self, record: MasterRecord, commits: Callable[[], int]) -> None:
        """`record` is of the term that stands; `commits` tells how many are durable."""
        self._record, self._commits = record, commits
        self._key = record.secret.encode()
        self._terms = {term.name: (term, end) for term, end in _with_ends(record.terms)}
        self._told: StorePosition | None = None
        self.overtaken_by: StorePosition | None = None

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        return self._record.cluster

    @property
    def first_commit(self) -> int:
        """How many commits the store had when the term began."""
        return self._record.terms[-1].commits if self._record.terms else 0

    def position(self) -> StorePosition:
        """How far the store has got now, proven."""
        commit = self._commits()
        if self._told is None or self._told.commit != commit:
            record = self._record
            name = record.terms[-1].name if record.terms else ""
            bare = StorePosition(record.generation, record.epoch, name, commit)
            self._told = replace(bare, proof=self._proof(bare))
        return self._told

    def judge(self, cluster: str, epoch: int, position: StorePosition | None) -> Judgement:
        """What it means that an agent has heard this; `cluster` is empty if it heard nothing."""
        own = self._record
        if cluster and cluster != own.cluster:
            return Judgement(
                Claim.FOREIGN,
                f"the agent belongs to cluster {cluster[:64]!r}, and this master leads"
                f" {own.cluster!r}: give this master the store of that cluster, or have the agent"
                " leave it with croupier-agent --recover=cleanup, which ends its tasks",
            )
        if position is None:
            if epoch <= own.epoch:
                return Judgement(Claim.SILENT)
            return self._unproven(f"a master of epoch {epoch}")
        if not self._is_proven(position):
            return self._unproven(str(position))
        # An agent that has lost records may have lost the one of its epoch or that of the position.
        if epoch > max(own.epoch, position.epoch):
            return self._unproven(f"a master of epoch {epoch}")
        claim = self.place(position)
        if claim is not Claim.NEWER:
            return Judgement(claim)
        if self.overtaken_by is None or position.rank > self.overtaken_by.rank:
            self.overtaken_by = position
        return Judgement(claim, f"an agent has heard of {position}; this store {self}")

    def place(self, position: StorePosition) -> Claim:
        """Where a position lies, taken to be proven."""
        own = self._record
        known = self._terms.get(position.term)
        if known is not None:
            end = self._commits() if known[1] is None else known[1]
            is_ours = position.epoch == known[0].epoch and position.commit <= end
        else:
            # Of the terms before the oldest that is remembered only the end is known.
            oldest = own.terms[0] if own.terms else PastTerm(own.epoch + 1, "", self._commits())
            is_ours = position.epoch < oldest.epoch and position.commit <= oldest.commits
        if is_ours and position.generation <= own.generation:
            return Claim.KNOWN
        # Its agent obeys no lower epoch than it has heard: a term above ours is not given up.
        is_given_up = position.generation < own.generation and position.epoch <= own.epoch
        return Claim.GIVEN_UP if is_given_up else Claim.NEWER

    def __str__(self) -> str:
        record = self._record
        return f"has {self._commits()} commits, up to epoch {record.epoch}"

    def _unproven(self, what: str) -> Judgement:
        return Judgement(
            Claim.UNPROVEN,
            f"the agent claims to have heard of {what}, and proves it with nothing that a master of"
            f" cluster {self.cluster!r} has said: it has obeyed a master that is not of this"
            " cluster, or this store is older than the secret of the cluster. Restore a newer copy"
            " of the store, or have the agent begin anew with croupier-agent --recover=cleanup,"
            " which ends its tasks",
        )

    def _proof(self, position: StorePosition) -> str:
        said = "/".join(
            (
                self.cluster,
                str(position.generation),
                str(position.epoch),
                position.term,
                str(position.commit),
            )
        )
        return hmac.digest(self._key, said.encode(), hashlib.sha256)[:PROOF_BYTES].hex()

    def _is_proven(self, position: StorePosition) -> bool:
        # A store of before there were secrets proves nothing.
        return bool(self._key) and hmac.compare_digest(
            self._proof(position).encode(), position.proof.encode()
        )


def refusal(store: str, position: StorePosition, lineage: object, who: str) -> str:
    """Why a master does not go on with a store that is behind `position`, and what to do."""
    return (
        f"the store {store} is an old copy: {who} knows {position}, and the store {lineage}."
        " No agent that knows better was told anything: tasks that have ended could run twice."
        " Restore the newest copy of the store; or go on with this one by --recover=old-store,"
        " which gives up what was committed after it"
    )


def _with_ends(terms: tuple[PastTerm, ...]) -> list[tuple[PastTerm, int | None]]:
    """Each term with the commit that it ended with; None: it has not ended."""
    ends: list[int | None] = [term.commits for term in terms[1:]]
    return list(zip(terms, [*ends, None], strict=False))
