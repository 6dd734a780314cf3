"""The agent's side of the agent protocol: REGISTER and reports to the master, orders from it.

Rule: reports and refusals belong to a session by number. Those of an ended session are dropped:
REGISTER of the next session carries everything that is unacknowledged. The agent closes the stream
of a master with an epoch below the highest seen (fencing.py).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import grpc.aio

from croupier.agent.core import events as ev
from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import Key
from croupier.agent.credential import AgentCredential
from croupier.agent.fencing import NewestMaster
from croupier.agent.wire import (
    Refused,
    health_to_wire,
    message_to_wire,
    order_from_wire,
    parts_of,
    register_to_wire,
    returned_to_wire,
)
from croupier.model import errors
from croupier.model.agent_orders import ExecutorMessage
from croupier.model.clock import Clock
from croupier.model.health import Problem
from croupier.model.ids import AgentId, check_id
from croupier.model.limits import MAX_PER_REPORT
from croupier.model.task import TaskStatus
from croupier.net.address import Address
from croupier.net.client_session import ClientSession, Disconnection, SessionTimes
from croupier.net.errors import error_from_rpc, error_from_wire
from croupier.net.leader_search import Masters
from croupier.process.inbox import Inbox
from croupier.process.logging import get_logger
from croupier.v1 import agent_pb2 as pb
from croupier.v1 import framework_pb2
from croupier.v1.agent_pb2_grpc import AgentServiceStub
from croupier.wire.task import status_to_wire

_Item = TypeVar("_Item")
_Connect = grpc.aio.StreamStreamMultiCallable[
    pb.AgentServiceConnectRequest, pb.AgentServiceConnectResponse
]

# A master sends these when it does not lead, or accepts no more sessions.
_NOT_SERVING = (framework_pb2.ERROR_CODE_NOT_LEADER, framework_pb2.ERROR_CODE_UNAVAILABLE)

# Errors that end when an operator gives the agent another credential, or more permissions.
_REJECTIONS = (errors.Unauthenticated, errors.PermissionDenied)
_ANOTHER_ID = "give this agent a certificate with another id (croupier cert agent)"

_log = get_logger("croupier.agent")

TIMES = SessionTimes(
    # A master may be busy with thousands of agents that register. It takes them in turn, so an
    # agent that leaves the line makes work for all.
    connect_s=5.0,
    join_s=45.0,
    is_join_extended=True,
    # Reports have no deadlines, so an idle agent need not wake up often.
    tick_s=5.0,
    backoff_first_s=0.2,
    backoff_cap_s=10.0,
    election_first_s=0.5,
    election_cap_s=1.0,
    settled_s=0.0,
)
MIN_HEARTBEAT_S, MAX_HEARTBEAT_S = 0.05, 3600.0

# A report that does not fit is sent again when its resend is due.
OUTBOX_LIMIT = 10_000
# More than a full sync of all tasks that an agent may have.
OUTBOX_BYTES = 64 * 1024 * 1024


class Link:
    """The session of an agent with its master.

    Attributes:
        rejection: why a master rejected the agent's credential; empty if none did lately.
    """

    def __init__(
        self,
        masters: Masters,
        identity: pb.Register,
        inbox: Inbox[ev.Event],
        rng: random.Random,
        newest: NewestMaster,
        credential: AgentCredential,
        clock: Clock,
        agent_id: Callable[[], AgentId],
        on_registered: Callable[[pb.Registered], None],
        on_exec: Callable[[str, Address], None],
    ) -> None:
        """Feed `inbox`.

        `newest` is the newest master that the agent's records name, and `agent_id` returns the id
        to which the token in `credential` is bound. `on_registered` is called with each REGISTERED,
        `on_exec` with the id of each command, and the master that ordered it.
        """
        self._credential, self._agent_id = credential, agent_id
        self._on_accepted, self._on_exec = on_registered, on_exec
        self.rejection = ""
        self._identity, self._inbox, self._newest = identity, inbox, newest
        self._clock = clock
        self._number = 0
        # The agent's id in REGISTER; None until it is sent, empty for a new agent.
        self._known_as: AgentId | None = None
        self._problems: tuple[Problem, ...] = ()
        # The problems last reported in this session.
        self._reported_problems: tuple[Problem, ...] = ()
        self._session: ClientSession[
            pb.Report, pb.AgentServiceConnectRequest, pb.AgentServiceConnectResponse
        ] = ClientSession(
            self,
            masters,
            TIMES,
            rng,
            is_fatal=lambda error: isinstance(error, errors.FailedOver),
            outbox_messages=OUTBOX_LIMIT,
            outbox_bytes=OUTBOX_BYTES,
            error_of=_error_of,
            find_security=lambda: credential.security,
            prepare=self._prepare,
        )

    @property
    def is_registered(self) -> bool:
        """Whether a master has accepted the agent, and the session is open."""
        return self._session.is_joined

    @property
    def is_open(self) -> bool:
        """Whether there is a session, even if the master has not answered in it yet."""
        return self._session.is_open

    async def run(self) -> None:
        """Stay connected until `leave`.

        Raises FailedOver if another agent has taken over this one's id.
        """
        await self._session.run()

    def leave(self, message: str) -> None:
        """Send GOODBYE after what is queued; `run` returns when the master ends the stream."""
        self._session.leave(pb.Report(goodbye=pb.Goodbye(message=message)))

    def introduce(self, identity: pb.Register) -> None:
        """Register again, with another identity."""
        self._identity = identity
        self._session.hang_up()

    def send_register(self, session: int, state: AgentState) -> None:
        """Send REGISTER as the first message of the session."""
        if session != self._number:
            return
        self._known_as = state.agent_id
        self._identity.sent_ms = int(self._clock.now() * 1000)
        self._problems = self._reported_problems = state.health.problems
        for report in register_to_wire(self._identity, state):
            self._session.send(report)

    def send_updates(self, session: int, statuses: Sequence[TaskStatus]) -> None:
        """Queue status updates."""
        for part in self._parts(session, statuses):
            for same in parts_of(part):
                updates = pb.StatusUpdates(statuses=map(status_to_wire, same))
                if not self._session.send(pb.Report(updates=updates)):
                    return

    def send_message(self, session: int, message: ExecutorMessage) -> None:
        """Send a message of an executor to its framework; it is lost if it does not fit."""
        if session == self._number:
            self._session.send(message_to_wire(message))

    def send_health(self, session: int | None, problems: tuple[Problem, ...]) -> None:
        """Report the problems that prevent launches, now and in heartbeats."""
        self._problems = problems
        if session == self._number and self.is_registered:
            self._reported_problems = problems
            self._send_once(health_to_wire(problems))

    def send_refusals(self, session: int, refused: Sequence[Refused]) -> None:
        """Report the launches that the agent refused for its problems."""
        for part in self._parts(session, refused):
            self._send_once(health_to_wire(self._problems, part))

    def send_returned(self, session: int, keys: Sequence[Key]) -> None:
        """Report lined-up tasks that will not start."""
        for part in self._parts(session, keys):
            self._send_once(returned_to_wire(part))

    def _parts(self, session: int, items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
        """Yield the items in parts that each fit one report; none if the session has ended."""
        if session == self._number:
            for begin in range(0, len(items), MAX_PER_REPORT):
                yield items[begin : begin + MAX_PER_REPORT]

    def _send_once(self, report: pb.Report) -> None:
        """Queue a report that is not repeated; if it does not fit, end the session."""
        if not self._session.send(report) and self._session.is_open:
            self._session.hang_up()

    # Called by the `ClientSession`.

    def connect(self, channel: grpc.aio.Channel) -> _Connect:
        """Return the method of the agent service."""
        return AgentServiceStub(channel).Connect

    def request_of(self, batch: list[pb.Report]) -> pb.AgentServiceConnectRequest:
        """Return the request that carries `batch`."""
        return pb.AgentServiceConnectRequest(reports=batch)

    def on_open(self) -> None:
        """Begin a session; the core answers with `send_register`."""
        self._number += 1
        self._known_as = None
        self._inbox.put_now(ev.Connected(self._number))

    async def on_message(self, message: pb.AgentServiceConnectResponse) -> None:
        """Queue the orders of a master that this agent obeys.

        Raises CroupierError if the master does not lead, is fenced, or ends the session.
        """
        self._check_master(message)
        for order in message.orders:
            match order.WhichOneof("order"):
                case "registered":
                    self._on_registered(order.registered)
                case "heartbeat":
                    pass
                case "exec":
                    if self.is_registered and self._session.address is not None:
                        self._on_exec(order.exec.exec_id, self._session.address)
                case "error":
                    error = error_from_wire(order.error)
                    if isinstance(error, errors.Removed):
                        self._inbox.put_now(ev.Removed())
                        if self._credential.certified_id:
                            # Its next id is the same.
                            raise errors.PermissionDenied(f"{error}; {_ANOTHER_ID}")
                    raise error
                case _:
                    # Waits while the inbox is full, and the master's stream with it.
                    await self._inbox.put(order_from_wire(order))

    def beat(self) -> None:
        """Send a heartbeat; an agent with problems repeats them in it."""
        has_changed = self._problems != self._reported_problems
        if self._problems or has_changed:
            self.send_health(self._number, self._problems)
        else:
            self._session.send(pb.Report(heartbeat=framework_pb2.Heartbeat()))

    def on_closed(self) -> None:
        """Report the end of the session to the core."""
        self._inbox.put_now(ev.Disconnected(self._number))

    def on_disconnected(self, disconnection: Disconnection) -> None:
        """Log the end of a stream."""
        error, event, level = disconnection.error, disconnection.event, logging.WARNING
        self.rejection = str(error) if isinstance(error, _REJECTIONS) else ""
        if isinstance(error, errors.NotLeader):
            level = logging.INFO
        elif self.rejection:
            # Retries help only once an operator has acted.
            event, level = "credential_rejected", logging.ERROR
        elif isinstance(error, errors.Conflict):
            # Retries do not help against a master of another cluster: an operator must act.
            event, level = "master_refused", logging.ERROR
        _log.log(
            level,
            event,
            master=str(disconnection.address),
            error=str(error),
            kind=type(error).__name__,
            retry_in_s=round(disconnection.retry_in_s, 3),
        )

    async def _prepare(self, address: Address) -> None:
        """Have a master accept the agent's token before the first stream with it."""
        if self.rejection:
            await self._credential.rejoin()
        try:
            await self._credential.prepare(address, self._agent_id())
        except errors.Removed:
            self._inbox.put_now(ev.Removed())
            raise

    def _check_master(self, message: pb.AgentServiceConnectResponse) -> None:
        """Check which master sent `message`, before its orders are read."""
        newest = self._newest
        registers = any(order.HasField("registered") for order in message.orders)
        try:
            if not newest.admit(message, is_registered=self.is_registered or registers):
                return
        except errors.Unavailable:
            for order in message.orders:
                if order.error.code in _NOT_SERVING:
                    raise error_from_wire(order.error) from None
            raise
        self._inbox.put_now(ev.MasterSeen(newest.epoch, newest.cluster, newest.position))

    def _on_registered(self, registered: pb.Registered) -> None:
        agent_id = AgentId(check_id("agent", registered.agent_id))
        if self._known_as is None:
            raise errors.ProtocolViolation("the master registered the agent before its REGISTER")
        if self._known_as and agent_id != self._known_as:
            raise errors.ProtocolViolation(
                f"the master registered agent {self._known_as} as {agent_id}"
            )
        self.rejection = ""
        self._on_accepted(registered)
        self._inbox.put_now(ev.Registered(agent_id))
        heartbeat_s = registered.heartbeat_ms / 1000
        reconnect_s = min(registered.reconnect_ms / 1000, TIMES.backoff_cap_s)
        self._session.join(
            min(max(heartbeat_s, MIN_HEARTBEAT_S), MAX_HEARTBEAT_S), reconnect_s or None
        )
        _log.info(
            "registered",
            agent_id=agent_id,
            master_id=registered.master_id,
            master=str(self._session.address),
        )
        if self._problems != self._reported_problems:
            self.beat()


def _error_of(error: grpc.RpcError) -> errors.CroupierError:
    """Return the error of a stream: only an ERROR in the stream is fatal, and gRPC's are not."""
    found = error_from_rpc(error)
    return found if isinstance(found, _REJECTIONS) else errors.Unavailable(str(found))
