"""Fencing: the agent obeys masters of its cluster whose store is not older than the newest seen.

Rule: the agent drops the messages of a master whose position is older than the recorded one. It
cannot check the proof of a position, but keeps it for the next master, which can. It records only
the position of a master that has accepted its REGISTER: an older store with more commits looks
newer, and only its master can detect that.
"""

from __future__ import annotations

from dataclasses import dataclass

from croupier.model.errors import Conflict, InvalidRequest, Unavailable
from croupier.model.store_position import StorePosition, check_epoch
from croupier.v1 import agent_pb2 as pb
from croupier.wire.store_position import position_from_wire

CLEAN_UP = "croupier-agent --recover=cleanup"
FORGET = "croupier-agent --recover=forget-master"


@dataclass(slots=True)
class NewestMaster:
    """The newest master seen, at first the recorded one.

    Attributes:
        cluster: the cluster that it leads; empty if no master was seen.
        position: the position of its store; None if it did not send one.
    """

    cluster: str = ""
    epoch: int = 0
    position: StorePosition | None = None

    def admit(self, message: pb.AgentServiceConnectResponse, *, is_registered: bool = True) -> bool:
        """Check the master that sent `message`; return whether it is newer than the last.

        A newer master is kept only once it has registered the agent: `is_registered`.

        Raises:
            Conflict: if it leads another cluster.
            InvalidRequest: if its epoch and its position contradict each other.
            Unavailable: if its epoch or its store is older than the newest seen.
        """
        cluster = message.cluster or self.cluster
        if self.cluster and cluster != self.cluster:
            raise Conflict(
                f"this agent belongs to cluster {self.cluster!r}, and this master leads"
                f" {cluster[:64]!r}: give the master the store of the agent's cluster; or end the"
                f" tasks of this agent and let it forget the cluster with {CLEAN_UP}"
            )
        epoch = check_epoch(message.master_epoch)
        position = position_from_wire(message.position) if message.HasField("position") else None
        if position is not None and position.epoch != epoch:
            raise InvalidRequest(
                "the master sent an epoch that differs from the epoch of its position"
            )
        if epoch < self.epoch:
            raise Unavailable(
                f"this master has epoch {epoch}, below {self.epoch}, which the agent has seen: it"
                " no longer leads, or its store is an old copy. If the newer master was a false"
                f" one, start this agent once with {FORGET}, which keeps its tasks"
            )
        self._check_position(position, message.first_commit)
        is_new = epoch > self.epoch or cluster != self.cluster
        if position is not None:
            is_new |= self.position is None or position.rank > self.position.rank
        is_new &= is_registered
        if is_new:
            self.cluster, self.epoch, self.position = cluster, epoch, position
        return is_new

    def _check_position(self, sent: StorePosition | None, first_commit: int) -> None:
        known = self.position
        if known is None:
            return
        if sent is None:
            raise Unavailable("this master does not send the position of its store")
        if sent.generation != known.generation:
            is_older = sent.generation < known.generation
        elif sent.epoch == known.epoch:
            is_older = sent.term != known.term
        else:
            is_older = first_commit < known.commit
        if is_older:
            raise Unavailable(
                f"the store of this master is an old copy: it is at {sent}, and the agent has seen"
                f" {known}. Restore the newest copy, or continue with this one by croupier-master"
                " --recover=old-store"
            )
