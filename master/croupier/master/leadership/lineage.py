"""The history of a cluster's store, which detects that the store is an old copy.

Each commit has a number, and each term a random name. Masters send the newest commit to agents,
with a proof by the secret of the cluster. Agents send it back in REGISTER. If a position is proven
and not part of this store's history, this store is an old copy.

Rule: a claim without a proof deposes no master; the agent that makes it is refused.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from croupier.master.core.events import Claim
from croupier.master.core.records import MasterRecord, PastTerm
from croupier.model.store_position import StorePosition

# Terms in the record; of older terms only the last commit is known.
MAX_TERMS: Final = 256
PROOF_BYTES: Final = 16


class Judgement(NamedTuple):
    """The kind of an agent's claim, and the reason if the agent is refused."""

    claim: Claim
    objection: str = ""


@dataclass(frozen=True, slots=True)
class Names:
    """Random names for a new term: of the cluster and its secret if it is new, and of the term."""

    cluster: str
    secret: str
    term: str

    @classmethod
    def new(cls) -> Names:
        """Draw names."""
        return cls(secrets.token_hex(3), secrets.token_hex(32), secrets.token_hex(8))


def next_record(
    before: MasterRecord | None, commits: int, names: Names, given_up: StorePosition | None = None
) -> MasterRecord:
    """Return the record of the next term.

    Args:
        before: the record of the last term; None begins a new cluster.
        commits: the number of commits in the store.
        names: random names; those of the cluster are used only if it is new.
        given_up: a position beyond this store, whose commits an operator gives up.
    """
    last = before or MasterRecord(names.cluster, 0, names.secret)
    epoch, generation = last.epoch, last.generation
    if given_up is not None:
        epoch = max(epoch, given_up.epoch)
        generation = max(generation, given_up.generation) + 1
    terms = (*last.terms, PastTerm(epoch + 1, names.term, commits))[-MAX_TERMS:]
    return MasterRecord(last.cluster, epoch + 1, last.secret, generation, terms)


class Lineage:
    """The history of the store; `overtaken_by` is the furthest proven position outside, or None."""

    def __init__(self, record: MasterRecord, commits: Callable[[], int]) -> None:
        """Start with the record of the present term; `commits` returns the number of commits."""
        self._record, self._commits = record, commits
        self._key = record.secret.encode()
        self._mac = hmac.new(self._key, digestmod="sha256")
        self._terms = {term.name: (term, end) for term, end in _with_ends(record.terms)}
        self._position: StorePosition | None = None
        self.overtaken_by: StorePosition | None = None

    @property
    def cluster(self) -> str:
        """Return the name of the cluster."""
        return self._record.cluster

    @property
    def first_commit(self) -> int:
        """Return the number of commits when the term began."""
        return self._record.terms[-1].commits

    def position(self) -> StorePosition:
        """Return the present position of the store, with its proof."""
        commit = self._commits()
        if self._position is None or self._position.commit != commit:
            bare = self._record.position(commit)
            self._position = replace(bare, proof=self._proof(bare))
        return self._position

    def judge(self, cluster: str, epoch: int, position: StorePosition | None) -> Judgement:
        """Judge the masters that an agent has seen; `cluster` is empty if it has seen none."""
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
        # An agent that lost records may state an older epoch or position than it has seen.
        if epoch > max(own.epoch, position.epoch):
            return self._unproven(f"a master of epoch {epoch}")
        claim = self.place(position)
        if claim is not Claim.NEWER:
            return Judgement(claim)
        if self.overtaken_by is None or position.rank > self.overtaken_by.rank:
            self.overtaken_by = position
        return Judgement(claim, f"an agent has seen {position}; this store {self}")

    def place(self, position: StorePosition) -> Claim:
        """Return the relation of a proven position to this history."""
        own = self._record
        known = self._terms.get(position.term)
        if known is not None:
            end = self._commits() if known[1] is None else known[1]
            is_ours = position.epoch == known[0].epoch and position.commit <= end
        else:
            # Of terms before the oldest in the record, only the last commit is known.
            oldest = own.terms[0] if own.terms else PastTerm(own.epoch + 1, "", self._commits())
            is_ours = position.epoch < oldest.epoch and position.commit <= oldest.commits
        if is_ours and position.generation <= own.generation:
            return Claim.KNOWN
        # An agent obeys no epoch below the highest it has seen, so a later term is not given up.
        is_given_up = position.generation < own.generation and position.epoch <= own.epoch
        return Claim.GIVEN_UP if is_given_up else Claim.NEWER

    def __str__(self) -> str:
        record = self._record
        return f"has {self._commits()} commits, up to epoch {record.epoch}"

    def _unproven(self, what: str) -> Judgement:
        return Judgement(
            Claim.UNPROVEN,
            f"the agent claims to have seen {what}, without a proof by a master of cluster"
            f" {self.cluster!r}: it has obeyed a master of another cluster, or this store is older"
            " than the secret of the cluster. Restore a newer copy of the store, or reset the agent"
            " with croupier-agent --recover=cleanup, which ends its tasks",
        )

    def _proof(self, position: StorePosition) -> str:
        numbers = f"{position.generation}/{position.epoch}/{position.term}/{position.commit}"
        mac = self._mac.copy()
        mac.update(f"{self.cluster}/{numbers}".encode())
        return mac.digest()[:PROOF_BYTES].hex()

    def _is_proven(self, position: StorePosition) -> bool:
        return hmac.compare_digest(self._proof(position).encode(), position.proof.encode())


def refusal(store: str, position: StorePosition, lineage: object, who: str) -> str:
    """Return why a master refuses a store that is behind `position`, and what to do."""
    return (
        f"the store {store} is an old copy: {who} knows {position}, and the store {lineage}."
        " This master has sent nothing to agents that know newer commits, since tasks that have"
        " ended could run twice. Restore the newest copy of the store, or continue with this one by"
        " --recover=old-store, which gives up all later commits"
    )


def _with_ends(terms: tuple[PastTerm, ...]) -> list[tuple[PastTerm, int | None]]:
    """Return each term with its last commit; None for the present term."""
    ends: list[int | None] = [term.commits for term in terms[1:]]
    return list(zip(terms, [*ends, None], strict=False))
