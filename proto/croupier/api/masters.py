"""Masters."""

from __future__ import annotations

from typing import TypedDict

from croupier.api.amounts import Amount
from croupier.api.objects import as_object
from croupier.v1 import operator_pb2 as pb


class KnownMaster(TypedDict):
    """A running master.

    Attributes:
        master_id: of its latest term; None: it has not led since it started.
        address: HOST:PORT of its gRPC.
        http_address: the URL of its page and HTTP API; None: unknown.
        version: None: unknown.
        since_ms: when it started, in milliseconds since the epoch; None: unknown.
        epoch: of its latest term; None: it has not led since it started.
        term_since_ms: when its latest term began.
        problem: what an operator should mend at this master; None: nothing is known.
    """

    master_id: str | None
    address: str
    leader: bool
    http_address: str | None
    version: str | None
    since_ms: int | None
    epoch: int | None
    term_since_ms: int | None
    problem: str | None


class MasterState(TypedDict):
    """A master, and the totals of the cluster so far as the caller may view them.

    Attributes:
        is_leader: another master that follows knows little more than `leader_address`.
        leader_address: HOST:PORT of the gRPC of the master that leads; None: unknown.
        http_address: the URL of this master's page and HTTP API; None: unknown.
        leader_http: the URL of those of the master that leads; None: unknown.
        epoch: the number of masters that have led the cluster, including this one.
        allocation_passes: of this term.
        agents_missing: known agents that have not registered in this term.
        decided_in_s: time until the master gives up the last of them.
    """

    master_id: str
    version: str
    is_leader: bool
    leader_address: str | None
    http_address: str | None
    leader_http: str | None
    epoch: int
    total: Amount
    used: Amount
    offered: Amount
    allocation_passes: int
    agents_missing: int
    decided_in_s: float


def master_view(answer: pb.GetMasterResponse, leader_http: str = "") -> MasterState:
    """Return a master; `leader_http` is the URL of another that leads."""
    leader = answer.http_address if answer.leader else leader_http
    return as_object(MasterState, answer, is_leader=answer.leader, leader_http=leader or None)
