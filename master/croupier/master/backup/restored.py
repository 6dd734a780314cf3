"""The content of a restored store: the same records, or a new generation of the cluster.

Agents remember the newest position of the store that a master sent them. A store that was restored
from an older copy must not be continued as if nothing had happened since: see `lineage`. So a copy
that a witness contradicts is refused, unless the operator accepts that it is old. Then the restored
store begins a new generation, whose epoch is above all that agents can have seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from croupier.master.backup.copy_file import Copy, Witness
from croupier.master.core.events import Claim
from croupier.master.core.records import MasterRecord, Record
from croupier.master.leadership.lineage import Lineage, Names, next_record
from croupier.model.errors import InvalidRequest
from croupier.model.store_position import StorePosition

# A witness may be older than what agents have seen, for it may be an older copy itself. That more
# masters than this have led since is not probable; if so, agents still contradict the store, and
# the master's own `--recover old-store` knows what they have seen.
UNSEEN_EPOCHS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Restored:
    """The content of the restored store; `position` is that of its last commit."""

    records: tuple[Record, ...]
    position: StorePosition


def restored(
    copy: Copy, witnesses: Sequence[Witness], names: Names, *, accepts_old: bool
) -> Restored:
    """Return the store that `copy` becomes.

    `witnesses` know the store that it replaces. `accepts_old`: the operator gives up what was
    committed after the copy, in a new generation with these random `names`. Raises InvalidRequest
    if the copy is of another cluster, or is older than a witness.
    """
    head, master = copy.head, copy.master
    lineage = Lineage(master, lambda: head.commit)
    for witness in witnesses:
        if witness.cluster != head.cluster:
            raise InvalidRequest(
                f"the copy is of cluster {head.cluster}, and {witness.name} is of cluster"
                f" {witness.cluster}: restore to another place, or move the files of that cluster"
                " away"
            )
        if lineage.place(witness.position) is Claim.NEWER and not accepts_old:
            raise InvalidRequest(
                f"the copy is too old: it ends with commit {head.commit} of epoch {head.epoch}, and"
                f" {witness.name} knows {witness.position}. Restore a newer copy, or give"
                " --recover old-store, which gives up everything that was committed after it"
            )
    if not accepts_old:
        return Restored(copy.records, head.position)
    record = next_record(master, head.commit, names, _given_up(copy, witnesses))
    others = (each for each in copy.records if not isinstance(each, MasterRecord))
    return Restored((record, *others), record.position(head.commit + 1))


def _given_up(copy: Copy, witnesses: Sequence[Witness]) -> StorePosition:
    """Return a position beyond those that agents have probably seen."""
    known = [copy.head.position, *(each.position for each in witnesses)]
    last = max(known, key=lambda position: position.rank)
    return replace(last, epoch=max(each.epoch for each in known) + UNSEEN_EPOCHS)
