"""The session of one framework or agent: its outbox, and the encoding of its messages.

Rule: a session is closed once; the error that closed it is the last message. Secrets are sealed
and opened here, so nothing behind it holds their values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar, cast

from croupier.master.access.caller import UNKNOWN_CALLER, Caller
from croupier.master.access.cluster_keys import LaunchProofs, LinkKeys
from croupier.master.core.effects import SessionId
from croupier.master.core.messages import Registered, Subscribed, ToAgent, ToFramework
from croupier.master.sealing import KeyBox, SecretBox, open_task, seal_task
from croupier.master.wire.to_agent import group_to_wire, order_to_wire
from croupier.master.wire.to_framework import KnownAgents, event_to_wire
from croupier.model.agent_orders import LaunchGroup, LaunchTask
from croupier.model.errors import CroupierError, InvalidRequest
from croupier.model.ids import AgentId, FrameworkId
from croupier.model.secrets import SecretValues
from croupier.model.task import TaskInfo
from croupier.net.errors import error_to_wire
from croupier.net.outbox import Budget, Encoded, Outbox
from croupier.v1 import agent_pb2, framework_pb2

if TYPE_CHECKING:
    from croupier.master.services.stream_guard import StreamAudit

# Messages; a step in which 100 agents become unreachable sends a framework fewer.
OUTBOX_LIMIT: Final = 100_000

_Wire = framework_pb2.Event | agent_pb2.Order
MessageT = TypeVar("MessageT")


class Session(ABC, Generic[MessageT]):
    """One stream from a framework or an agent.

    Attributes:
        caller: the peer, and its credential.
        error: why it was closed, if it was closed for an error.
        is_introduced: whether the peer has sent SUBSCRIBE or REGISTER.
        is_accepted: whether it was answered by SUBSCRIBED or REGISTERED.
        is_cut: whether nothing that the peer sends counts any more.
        audit: writes lines about the answers to its calls; None: they are not audited.
    """

    _wire: ClassVar[type[_Wire]]

    def __init__(
        self,
        session_id: SessionId,
        caller: Caller = UNKNOWN_CALLER,
        budget: Budget | None = None,
        box: SecretBox | None = None,
        *,
        is_private: bool = True,
    ) -> None:
        """Begin with an empty outbox, which counts toward `budget`.

        `box` seals and opens secrets; `is_private`: third parties cannot read the stream.
        """
        self.session_id, self.caller, self.is_private = session_id, caller, is_private
        self.is_introduced = self.is_accepted = self.is_cut = False
        self.audit: StreamAudit | None = None
        self.outbox: Outbox[Encoded] = Outbox(OUTBOX_LIMIT, budget=budget)
        self.error: CroupierError | None = None
        self._box = box or KeyBox()

    def put(self, message: MessageT) -> bool:
        """Queue a message; False if there is no room."""
        self.is_accepted |= isinstance(message, Registered | Subscribed)
        if self.audit is not None:
            self.audit.sent(cast("ToFramework | ToAgent", message))
        return self._queue(message)

    def _queue(self, message: MessageT) -> bool:
        return self.outbox.put(_encoded(self._encode(message)))

    @abstractmethod
    def _encode(self, message: MessageT) -> _Wire:
        """Return the message on the wire."""

    def beat(self) -> None:
        """Queue a heartbeat."""
        self.outbox.put(_HEARTBEATS[self._wire])

    def end(self, error: CroupierError | None) -> None:
        """Write what is queued, then the error, and end; only the first end counts."""
        if not self.outbox.is_closed:
            self.error = error
            if self.audit is not None:
                self.audit.ended(error)
            self.outbox.close(self._last(error) if error else None)

    def _last(self, error: CroupierError) -> Encoded | None:
        """Return the message that ends the stream with an error; None if there is none for it."""
        return _encoded(self._wire(error=error_to_wire(error)))


class FrameworkSession(Session[ToFramework]):
    """A framework's stream, which carries the description of each agent once.

    `framework_id`: the framework that has subscribed; empty before.
    """

    _wire = framework_pb2.Event
    framework_id = FrameworkId("")

    @cached_property
    def _known(self) -> KnownAgents:
        return {}

    def put(self, message: ToFramework) -> bool:
        """Queue a message; False if there is no room."""
        if isinstance(message, Subscribed):
            self.framework_id = message.framework_id
        return super().put(message)

    def _encode(self, message: ToFramework) -> framework_pb2.Event:
        return event_to_wire(message, self._known)

    def seal(self, task: TaskInfo, values: SecretValues) -> TaskInfo:
        """Return a task of the framework with its secrets sealed.

        Raises InvalidRequest if the master has no key, or others can read the stream.
        """
        if not self.is_private:
            raise InvalidRequest(
                "secrets came over an unencrypted connection from another machine, and count as"
                " leaked; connect with TLS (or start the master with --insecure)"
            )
        return seal_task(self._box, self.framework_id, task, values)


class AgentSession(Session[ToAgent]):
    """An agent's stream.

    Attributes:
        links: keys of links to output; None: output needs no links.
        proofs: prove launches; None: launches need no proof.
        reconnect_s: bound of the agent's waits between attempts to reconnect; 0: its own.
        heartbeat_s: the interval of its heartbeats, in REGISTERED; 0 before.
    """

    _wire = agent_pb2.Order
    links: LinkKeys | None = None
    proofs: LaunchProofs | None = None
    reconnect_s = heartbeat_s = 0.0
    _agent_id = AgentId("")

    def open_exec(self, exec_id: str) -> bool:
        """Order the agent to open a stream for a command; False if there is no room."""
        order = agent_pb2.Order(exec=agent_pb2.OpenExec(exec_id=exec_id))
        return self.outbox.put(_encoded(order))

    def _encode(self, message: ToAgent) -> agent_pb2.Order:
        """Encode a message; secrets are in plain text from here to the agent.

        Raises Unopenable if a secret of a launch cannot be opened.
        """
        if isinstance(message, Registered):
            self._agent_id, self.heartbeat_s = message.agent_id, message.heartbeat_s
        if isinstance(message, LaunchGroup):
            return group_to_wire(map(self._encode, message.tasks))
        if isinstance(message, LaunchTask):
            secrets = open_task(self._box, message.framework_id, message.task)
            if self.proofs is not None:
                message = self.proofs.proven(message, self._agent_id)
            return order_to_wire(message, secrets)
        return order_to_wire(message, links=self.links, reconnect_s=self.reconnect_s)


def _encoded(message: _Wire) -> Encoded:
    return Encoded(message.SerializeToString())


_HEARTBEATS: Final[dict[type[_Wire], Encoded]] = {
    wire: _encoded(wire(heartbeat=framework_pb2.Heartbeat()))
    for wire in (framework_pb2.Event, agent_pb2.Order)
}
