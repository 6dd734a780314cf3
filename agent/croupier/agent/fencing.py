"""Which masters an agent obeys: of its own cluster, and with no older store than it has heard of.

Rule: the agent drops the messages of a master whose position is older than the newest that it
keeps. An agent cannot check the proof of a position; it keeps the proof for the next master, which
can. It keeps only the position of a master that has read its REGISTER and accepted it. An older
store that has counted more commits looks newer, and only that master can tell the difference.
"""

from __future__ import annotations

from croupier.model.errors import Conflict, InvalidRequest, Unavailable
from croupier.model.store_position import StorePosition, check_epoch
from croupier.v1 import agent_pb2 as pb
from croupier.wire.store_position import position_from_wire

CLEAN_UP = "croupier-agent --recover=cleanup"


class NewestMaster:
    """The newest master that was heard so far.

    Attributes:
        cluster: that it leads; empty: none was heard.
        epoch: of its term.
        position: how far its store was; None if it did not say.
    """

    def __init__(
        self, cluster: str = "", epoch: int = 0, position: StorePosition | None = None
    ) -> None:
        """Begin with what the records say."""
        self.cluster, self.epoch, self.position = cluster, epoch, position

    def admit(self, message: pb.AgentServiceConnectResponse, *, is_registered: bool = True) -> bool:
        """Take in who says `message`; whether anything about it is new.

        Nothing is, until that master has taken the agent in: `is_registered`.

        Raises:
            Conflict: if it leads another cluster.
            InvalidRequest: if it says what no master can say.
            Unavailable: if it is older, or has an older store, than one that was heard before.
        """
        cluster = message.cluster or self.cluster
        self._check_cluster(cluster)
        epoch = check_epoch(message.master_epoch)
        position = position_from_wire(message.position) if message.HasField("position") else None
        if position is not None and position.epoch != epoch:
            raise InvalidRequest("the master contradicts itself in its epoch")
        if epoch < self.epoch:
            raise Unavailable(
                f"this master is of epoch {epoch}, and {self.epoch} was heard before: it leads no"
                " more, or its store is an old copy. If a false master was heard, have this agent"
                f" forget it with {CLEAN_UP}, which ends its tasks"
            )
        self._check_position(position, message.first_commit)
        is_new = epoch > self.epoch or cluster != self.cluster
        if position is not None:
            is_new |= self.position is None or position.rank > self.position.rank
        is_new &= is_registered
        if is_new:
            self.cluster, self.epoch, self.position = cluster, epoch, position
        return is_new

    def _check_cluster(self, cluster: str) -> None:
        if self.cluster and cluster != self.cluster:
            raise Conflict(
                f"this agent belongs to cluster {self.cluster!r}, and this master leads"
                f" {cluster[:64]!r}: give the master the store of that cluster; or end the tasks of"
                f" this agent and have it forget the cluster with {CLEAN_UP}"
            )

    def _check_position(self, told: StorePosition | None, first_commit: int) -> None:
        known = self.position
        if known is None:
            return
        if told is None:
            raise Unavailable(
                f"this master does not say how far its store is, and {known} was heard before:"
                " it is of an older release, with an older store"
            )
        if told.generation != known.generation:
            is_older = told.generation < known.generation
        elif told.epoch == known.epoch:
            is_older = told.term != known.term
        else:
            is_older = first_commit < known.commit
        if is_older:
            raise Unavailable(
                f"the store of this master is an old copy: it is at {told}, and {known} was heard"
                " before. Restore the newest copy, or go on with it by croupier-master"
                " --recover=old-store"
            )
