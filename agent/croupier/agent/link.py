"""The connection to the master: one stream at a time, and another whenever it ends.

Rule: what the agent says belongs to a session by number, and what is said to a session that
is over is dropped: the next one begins with everything that waits. What an older master says
than the newest that was ever heard is not taken in, and its stream is hung up.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Sequence
from itertools import count
from typing import TYPE_CHECKING

import grpc.aio

from croupier.agent.core.events import (
    Connected,
    Disconnected,
    Event,
    MasterSeen,
    Registered,
    Removed,
)
from croupier.agent.core.state import AgentState
from croupier.agent.fencing import NewestMaster
from croupier.agent.wire import (
    Identity,
    Refused,
    goodbye_to_wire,
    health_to_wire,
    heartbeat_to_wire,
    order_from_wire,
    register_to_wire,
    updates_to_wire,
)
from croupier.model import errors
from croupier.model.errors import (
    Conflict,
    CroupierError,
    FailedOver,
    NotLeader,
    ProtocolViolation,
    Unavailable,
)
from croupier.model.health import Problem
from croupier.model.ids import AgentId, check_id
from croupier.model.log_throttle import Repeats
from croupier.model.task import TaskStatus
from croupier.net.address import Address
from croupier.net.backoff import Backoff
from croupier.net.cancellation import reraise_own_cancellation
from croupier.net.errors import error_from_rpc, error_from_wire
from croupier.net.masters import Masters
from croupier.net.outbox import Outbox
from croupier.net.transport import make_channel
from croupier.process.inbox import Inbox
from croupier.process.logging import get_logger
from croupier.v1 import agent_pb2 as pb
from croupier.v1 import framework_pb2
from croupier.v1.agent_pb2_grpc import AgentServiceStub

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger

Call = grpc.aio.StreamStreamCall[pb.AgentServiceConnectRequest, pb.AgentServiceConnectResponse]

# What a master says that does not lead, or takes no more sessions.
_SAID_BY_ANYBODY = (framework_pb2.ERROR_CODE_NOT_LEADER, framework_pb2.ERROR_CODE_UNAVAILABLE)

_log = get_logger("croupier.agent")

# To be taken in, by a master that may be busy taking in thousands.
JOIN_S = 20.0
# After so many heartbeats without a word, the master is taken to be gone.
SILENT_BEATS = 5
MIN_SILENCE_S = 3.0
MIN_HEARTBEAT_S, MAX_HEARTBEAT_S = 0.05, 3600.0

# What does not fit is sent again when its resend is due.
OUTBOX_LIMIT = 10_000
# A full sync of all tasks that an agent may have is less.
OUTBOX_BYTES = 64 * 1024 * 1024
# About 100 KB, and at most 500 KB, of a message that may have 1 MB.
STATUSES_PER_REPORT = 200


class Waits:
    """How long to wait before the next master is tried."""

    def __init__(self, rng: random.Random) -> None:
        """Begin with short waits."""
        self._lost, self._electing = Backoff(0.2, 10.0, rng), Backoff(0.5, 1.0, rng)

    def next_s(self, error: CroupierError) -> float:
        """Seconds to wait after `error`."""
        if not isinstance(error, NotLeader):
            return self._lost.next_s()
        # Somebody is there, so there is soon a leader: no reason to come back late.
        self._lost.reset()
        return self._electing.next_s()

    def reset(self) -> None:
        """A master has answered as it should."""
        self._lost.reset()
        self._electing.reset()


class Link:
    """The agent's side of the agent protocol."""

    def __init__(
        self,
        masters: Masters,
        identity: Identity,
        inbox: Inbox[Event],
        waits: Waits,
        newest: NewestMaster | None = None,
    ) -> None:
        """Feed `inbox`; nothing happens before `run`.

        `newest` is the newest master that was heard so far.
        """
        self._masters, self._waits = masters, waits
        self._identity, self._inbox = identity, inbox
        self._newest = newest or NewestMaster()
        self._numbers = count(1)
        self._session = 0
        self._outbox: Outbox[pb.Report] = _closed()
        self._known_as: AgentId | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._problems: tuple[Problem, ...] = ()
        # As the master of the session knows them.
        self._problems_told: tuple[Problem, ...] = ()
        self._takes_health = False
        self._call: Call | None = None
        self._leaving = False
        self._was_registered = False
        self._repeats = Repeats()
        self.is_registered = False
        """Whether a master has taken the agent in and is heard of."""

    @property
    def is_open(self) -> bool:
        """Whether there is a session, even if the master has not answered in it yet."""
        return not self._outbox.is_closed

    async def run(self) -> None:
        """Stay connected until `leave`.

        Raises:
            FailedOver: if another agent has taken over this one's id.
        """
        while True:
            address = self._masters.next()
            try:
                await self._serve(address, _log.bind(master=str(address)))
            except FailedOver:
                raise
            except CroupierError as error:
                if self._leaving:
                    return
                wait_s = 0.0 if self._masters.failed(error) else self._waits.next_s(error)
                self._log_end(address, error, wait_s)
                await asyncio.sleep(wait_s)
            else:
                return

    def _log_end(self, address: Address, error: CroupierError, wait_s: float) -> None:
        name = "master_lost" if self._was_registered else "master_unreachable"
        if isinstance(error, NotLeader):
            name = "master_follows"
        elif isinstance(error, Conflict):
            name = "master_refused"
        kind = type(error).__name__
        now = asyncio.get_running_loop().time()
        if name != "master_lost" and not self._repeats.is_due((name, address, kind), now):
            return
        # A master of another cluster does not become right by waiting.
        level = logging.ERROR if isinstance(error, Conflict) else logging.WARNING
        _log.log(
            logging.INFO if name == "master_follows" else level,
            name,
            master=str(address),
            error=str(error),
            kind=kind,
            retry_in_s=round(wait_s, 3),
        )

    def send_register(self, session: int, state: AgentState) -> None:
        """Say REGISTER as the first thing in the session."""
        if session != self._session:
            return
        self._known_as = state.agent_id
        self._problems = self._problems_told = state.health.problems
        for report in register_to_wire(self._identity, state):
            self._outbox.put(report)

    def send_updates(self, session: int, statuses: Sequence[TaskStatus]) -> None:
        """Queue status updates."""
        if session != self._session:
            return
        for begin in range(0, len(statuses), STATUSES_PER_REPORT):
            part = statuses[begin : begin + STATUSES_PER_REPORT]
            if not self._outbox.put(updates_to_wire(part)):
                return

    def send_health(self, session: int | None, problems: tuple[Problem, ...]) -> None:
        """Say what keeps the agent from launching tasks, now and with each heartbeat."""
        self._problems = problems
        if session == self._session and self._takes_health:
            self._problems_told = problems
            self._put_or_hang_up(health_to_wire(problems))

    def send_refusals(self, session: int, refused: Sequence[Refused]) -> None:
        """Say which launches the agent refused for its problems."""
        if session != self._session:
            return
        for begin in range(0, len(refused), STATUSES_PER_REPORT):
            part = refused[begin : begin + STATUSES_PER_REPORT]
            self._put_or_hang_up(health_to_wire(self._problems, part))

    def _put_or_hang_up(self, report: pb.Report) -> None:
        """Queue what is never said again in the session; the next REGISTER makes up for it."""
        is_lost = not self._outbox.put(report) and not self._outbox.is_closed
        if is_lost and self._call is not None:
            self._call.cancel()

    def leave(self, message: str) -> None:
        """Say GOODBYE after what is queued; `run` returns when the master has hung up."""
        self._leaving = True
        self._outbox.close(goodbye_to_wire(message))

    async def _serve(self, address: Address, log: BoundLogger) -> None:
        """One session, from its opening to its end.

        Raises:
            CroupierError: why it ended, unless the agent has left.
        """
        channel = make_channel(address)
        outbox = self._outbox = Outbox(OUTBOX_LIMIT, limit_bytes=OUTBOX_BYTES)
        session = self._session = next(self._numbers)
        self._known_as = None
        self._was_registered = False
        call = AgentServiceStub(channel).Connect(_requests(outbox))
        self._call, self._takes_health = call, False
        self._inbox.put_now(Connected(session))
        try:
            await self._listen(call, log)
        except grpc.aio.AioRpcError as error:
            reraise_own_cancellation()
            # What a status means is told apart by typed errors only; here it is "try again".
            raise Unavailable(str(error_from_rpc(error))) from error
        finally:
            self.is_registered = False
            if self._beat is not None:
                self._beat.cancel()
                self._beat = None
            outbox.drop()
            outbox.close()
            self._inbox.put_now(Disconnected(session))
            call.cancel()
            await channel.close()

    async def _listen(
        self,
        call: Call,
        log: BoundLogger,
    ) -> None:
        silence_s = JOIN_S
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(JOIN_S) as limit:
                async for message in _messages(call):
                    self._hear(message)
                    for order in message.orders:
                        if order.HasField("registered"):
                            silence_s = self._on_registered(order.registered, log)
                        else:
                            await self._on_order(order)
                    limit.reschedule(loop.time() + silence_s)
        except TimeoutError:
            raise Unavailable(f"nothing was heard of the master for {silence_s:g} s") from None
        if not self._leaving:
            raise Unavailable("the master has hung up")

    def _hear(self, message: pb.AgentServiceConnectResponse) -> None:
        """Look at who speaks, before what is said.

        Raises:
            Unavailable: if it says itself that it does not serve.
            CroupierError: if it is not to be obeyed, as `NewestMaster.hear` says.
        """
        newest = self._newest
        try:
            told = any(order.HasField("registered") for order in message.orders)
            if not newest.admit(message, is_registered=self._was_registered or told):
                return
        except Unavailable:
            for order in message.orders:
                if order.error.code in _SAID_BY_ANYBODY:
                    raise error_from_wire(order.error) from None
            raise
        self._inbox.put_now(MasterSeen(newest.epoch, newest.cluster, newest.position))

    def _on_registered(self, registered: pb.Registered, log: BoundLogger) -> float:
        """Begin to beat; how long the master may be silent from now on."""
        agent_id = AgentId(check_id("agent", registered.agent_id))
        if self._known_as is None:
            raise ProtocolViolation("registered before it asked to be")
        if self._known_as and agent_id != self._known_as:
            raise ProtocolViolation(f"registered as {agent_id}, but this is {self._known_as}")
        told_s = registered.heartbeat_ms / 1000
        heartbeat_s = min(max(told_s, MIN_HEARTBEAT_S), MAX_HEARTBEAT_S)
        self._takes_health = registered.takes_health
        self._inbox.put_now(Registered(agent_id, registered.takes_health))
        self._masters.served()
        self._waits.reset()
        self._repeats.forget()
        self.is_registered = self._was_registered = True
        log.info("registered", agent_id=agent_id, master_id=registered.master_id)
        self._beat_every(heartbeat_s)
        return max(SILENT_BEATS * heartbeat_s, MIN_SILENCE_S)

    async def _on_order(self, order: pb.Order) -> None:
        match order.WhichOneof("order"):
            case "heartbeat":
                return
            case "error":
                error = error_from_wire(order.error)
                if isinstance(error, errors.Removed):
                    self._inbox.put_now(Removed())
                raise error
            case _:
                # Waits while there is too much to do, and the master's stream with it.
                await self._inbox.put(order_from_wire(order))

    def _beat_every(self, interval_s: float) -> None:
        if self._beat is not None:
            self._beat.cancel()
        is_news = self._problems != self._problems_told
        if self._takes_health and (self._problems or is_news):
            self.send_health(self._session, self._problems)
        else:
            self._outbox.put(heartbeat_to_wire())
        loop = asyncio.get_running_loop()
        self._beat = loop.call_later(interval_s, self._beat_every, interval_s)


async def _requests(outbox: Outbox[pb.Report]) -> AsyncIterator[pb.AgentServiceConnectRequest]:
    while batch := await outbox.take():
        yield pb.AgentServiceConnectRequest(reports=batch)


async def _messages(call: Call) -> AsyncIterator[pb.AgentServiceConnectResponse]:
    """What the master says.

    Raises:
        Unavailable: if the master cancelled the stream. gRPC makes that look as if this task
            was cancelled.
    """
    try:
        async for message in call:
            yield message
    except asyncio.CancelledError:
        reraise_own_cancellation()
        raise Unavailable("the master has cancelled the stream") from None


def _closed() -> Outbox[pb.Report]:
    outbox: Outbox[pb.Report] = Outbox(0)
    outbox.close()
    return outbox
