"""One term of a leader, and the messages of masters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from croupier.master.access.cluster_keys import LaunchProofs
from croupier.master.core.effects import SessionId
from croupier.master.core.events import Register
from croupier.master.core.messages import ToAgent
from croupier.master.core.records import MasterRecord
from croupier.master.core.state import State
from croupier.master.core.step import Event
from croupier.master.leadership.lineage import Lineage
from croupier.model.ids import AgentId
from croupier.model.store_position import StorePosition
from croupier.v1 import agent_pb2 as pb
from tests.chaos.virtual.network import End


@dataclass(frozen=True, slots=True)
class Ordered:
    """A master's message, with the epoch and the store position of its heading."""

    epoch: int
    message: ToAgent
    heading: pb.AgentServiceConnectResponse


@dataclass(frozen=True, slots=True)
class Introduced:
    """An agent's REGISTER, with the newest master that it knows, and the proofs of its tasks."""

    register: Callable[[SessionId], Register]
    cluster: str
    epoch: int
    position: StorePosition | None
    proofs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """An operator's request, and the callback for the answer."""

    make_event: Callable[[int], Event]
    answered: Callable[[object], None]


class Term:
    """One term of a leader.

    Attributes:
        sessions: the open streams by session.
        peers: the sessions by stream.
        who: the framework of a session, and the run of its program.
        commits: the number of durable commits that the master knows.
        agent_ids: the agents of sessions.
    """

    def __init__(
        self, master: str, record: MasterRecord, revision: int, state: State, commits: int
    ) -> None:
        self.master, self.epoch, self.revision, self.state = master, record.epoch, revision, state
        self.commits = commits
        self.lineage = Lineage(record, lambda: self.commits)
        self.proofs = LaunchProofs(record.secret)
        self.agent_ids: dict[SessionId, AgentId] = {}
        self.sessions: dict[SessionId, End] = {}
        self.peers: dict[End, SessionId] = {}
        self.who: dict[SessionId, tuple[str, str]] = {}
