"""A master for tests: real gRPC on loopback, decisions by the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Self, TypeVar

from croupier.model.attributes import facts_of
from croupier.model.demand import Demand
from croupier.model.errors import Conflict, CroupierError, NotFound, NotLeader
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Reason, Source, TaskState, TaskStatus
from croupier.net.address import Address
from croupier.net.task_scope import end
from croupier.net.transport import MAX_MESSAGE_BYTES, bind, make_server
from croupier.process.clock import SystemClock
from croupier.sdk.testing.cluster import FakeOffer
from croupier.sdk.testing.recorded import RecordedCall
from croupier.sdk.testing.service import Manner, Service
from croupier.sdk.testing.stream import Stream
from croupier.v1 import framework_pb2 as pb
from croupier.v1 import framework_pb2_grpc as rpc
from croupier.wire.resources import attributes_to_wire, resources_to_wire

FoundT = TypeVar("FoundT")


class FakeMaster:
    """Takes one framework at a time, offers what the test offers, and records every call.

        async with FakeMaster() as master:
            framework = MyFramework(master=master.address)
            running = asyncio.create_task(framework.run())
            await master.subscribed()
            master.offer("cpus:4;mem:1GB")
            call = await master.next_call("accept")
            await master.update(call.tasks[0].task_id, TaskState.RUNNING)
            await framework.stop()
            await running

    Every wait ends after `timeout_s` by an AssertionError that says what came instead.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        auto_run: bool = False,
        heartbeat_s: float = 0.2,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        resend_s: float = 0.5,
        timeout_s: float = 10.0,
    ) -> None:
        """Describe the master; `async with` starts it.

        Args:
            port: 0 takes any that is free.
            auto_run: whether launched tasks go to STARTING, RUNNING and FINISHED at once.
            heartbeat_s: the pace that it tells its frameworks, and keeps.
            max_message_bytes: the largest call that it takes.
            resend_s: after which updates that were not acknowledged are sent again.
            timeout_s: how long the waits of a test may take.
        """
        self._port, self._timeout_s = port, timeout_s
        self._clock = SystemClock()
        manner = Manner(auto_run, heartbeat_s, max_message_bytes, resend_s)
        self._service = Service(manner, self._clock)
        self._server = make_server()
        self._ticking: asyncio.Task[None] | None = None
        self._offers_made = 0

    async def __aenter__(self) -> Self:
        """Listen."""
        rpc.add_FrameworkServiceServicer_to_server(self._service, self._server)
        self._port = bind(self._server, Address("127.0.0.1", self._port))
        await self._server.start()
        self._ticking = asyncio.create_task(self._service.tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        """End all streams and stop listening."""
        if self._ticking is not None:
            await end(self._ticking)
        if self._service.stream is not None:
            self._service.stream.drop()
        await self._server.stop(grace=None)

    @property
    def address(self) -> str:
        """HOST:PORT, for the framework's `master`."""
        return f"127.0.0.1:{self._port}"

    @property
    def demand(self) -> Demand | None:
        """The first of `demands`; None if there is none."""
        return next(iter(self.demands), None)

    @property
    def demands(self) -> tuple[Demand, ...]:
        """The framework's demands as the master sees them, counted down by what was launched."""
        return self._service.cluster.demands

    @property
    def is_suppressed(self) -> bool:
        """Whether the framework wants no offers, in any role."""
        cluster = self._service.cluster
        return bool(cluster.roles) and cluster.suppressed == set(cluster.roles)

    @property
    def suppressed_roles(self) -> frozenset[str]:
        """The roles in which the framework wants no offers."""
        return frozenset(self._service.cluster.suppressed)

    @property
    def is_connected(self) -> bool:
        """Whether a framework is subscribed now."""
        return self._service.stream is not None

    @property
    def calls(self) -> tuple[RecordedCall, ...]:
        """The calls, save heartbeats, that `next_call` has not handed out yet."""
        return tuple(call for call in self._service.calls if call.kind != "heartbeat")

    @property
    def refused(self) -> int:
        """How many SUBSCRIBEs were sent away because this master follows."""
        return self._service.refused

    def task_state(self, task_id: str) -> TaskState:
        """The state of a task that was launched.

        Raises:
            NotFound: if it was not.
        """
        if task_id not in self._service.cluster.tasks:
            raise NotFound(f"no task {task_id} was launched")
        return self._service.cluster.tasks[task_id].state

    async def subscribed(self) -> RecordedCall:
        """Wait for the next SUBSCRIBE that was taken; each is handed out once."""
        return await self.next_call("subscribe")

    async def next_call(self, kind: str) -> RecordedCall:
        """Wait for the next call of that kind, in lower case; each is handed out once."""

        def find() -> RecordedCall | None:
            call = next((call for call in self._service.calls if call.kind == kind), None)
            if call is not None:
                self._service.calls.remove(call)
            return call

        return await self._until(find, f"call {kind}")

    async def acknowledged(self, task_id: str, sequence: int) -> None:
        """Wait until the framework has acknowledged the task's updates up to `sequence`."""

        def find() -> bool | None:
            task = self._service.cluster.tasks.get(task_id)
            return True if task is not None and task.acknowledged >= sequence else None

        await self._until(find, f"acknowledgement of update {sequence} of {task_id}")

    def offer(
        self,
        resources: Resources | str,
        agent_id: str = "a1",
        hostname: str = "h1",
        attributes: Mapping[str, str] | None = None,
        lease_s: float = 10.0,
        http_address: str = "",
        role: str | None = None,
    ) -> str:
        """Offer resources of an agent, and return the offer's id.

        Args:
            resources: as they are, or as they are written.
            agent_id: whose they are.
            hostname: of the agent.
            attributes: of the agent.
            lease_s: how long the offer stands.
            http_address: of the agent.
            role: of the framework's; None is the first.

        Raises:
            Conflict: if no framework is subscribed, or not in that role.
        """
        stream, roles = self._subscribed_stream(), self._service.cluster.roles
        if role is not None and role not in roles:
            raise Conflict(f"the framework is not subscribed in role {role!r}")
        own = roles[0] if role is None else Role(role)
        amount = Resources.parse(resources) if isinstance(resources, str) else resources
        self._offers_made += 1
        offer_id = f"O{self._offers_made}"
        expires_at = self._clock.now() + lease_s
        facts = facts_of(hostname, attributes or {})
        self._service.cluster.add(FakeOffer(offer_id, agent_id, own, amount, expires_at, facts))
        agent = pb.AgentDescription(
            agent_id=agent_id,
            hostname=hostname,
            attributes=attributes_to_wire(attributes or {}),
            http_address=http_address,
        )
        offers = pb.Offers(
            agents=[] if self._service.agents_told.get(agent_id) == agent else [agent]
        )
        self._service.agents_told[agent_id] = agent
        offers.offers.add(
            offer_id=offer_id,
            agent_id=agent_id,
            role=own,
            resources=resources_to_wire(amount),
            lease_ms=round(lease_s * 1000),
        )
        stream.send(pb.Event(offers=offers))
        return offer_id

    def rescind(self, offer_id: str, reason: str = "the test says so") -> None:
        """Take an offer back."""
        self._service.cluster.offers.pop(offer_id, None)
        rescind = pb.Rescind(offer_id=offer_id, reason=reason)
        self._subscribed_stream().send(pb.Event(rescind=rescind))

    async def update(
        self,
        task_id: str,
        state: TaskState,
        *,
        reason: Reason = Reason.NONE,
        message: str = "",
        exit_code: int | None = None,
        signal: int | None = None,
        from_master: bool = False,
        decided_in_s: float | None = None,
    ) -> int:
        """Wait until the task is launched, move it to `state`, and send the update.

        Returns:
            The update's sequence number. With `from_master` it is `MASTER_SEQUENCE` for an
            end, which is sent until acknowledged as an agent's is; else 0: such an update is
            sent once and not acknowledged.
        """
        await self._until(lambda: self._service.cluster.tasks.get(task_id), f"task {task_id}")
        wanted = TaskStatus(
            framework_id=FrameworkId(""),
            task_id=TaskId(task_id),
            agent_id=AgentId(""),
            state=state,
            source=Source.MASTER if from_master else Source.EXECUTOR,
            reason=reason,
            message=message,
            time_ms=self._clock.wall_ms(),
            exit_code=exit_code,
            signal=signal,
            decided_in_s=decided_in_s,
        )
        status = self._service.cluster.update(wanted)
        self._service.send_updates([status])
        return status.sequence

    def fail_agent(self, agent_id: str, message: str = "the test says so") -> None:
        """Lose an agent: its offers are rescinded, its live tasks become UNREACHABLE."""
        for offer in list(self._service.cluster.offers.values()):
            if offer.agent_id == agent_id:
                self.rescind(offer.offer_id, "agent lost")
        told = self._service.agents_told.get(agent_id, pb.AgentDescription())
        failure = pb.Failure(agent_id=agent_id, hostname=told.hostname, message=message)
        self._subscribed_stream().send(pb.Event(failure=failure))
        for task in self._service.cluster.tasks.values():
            if task.agent_id == agent_id and not task.state.is_terminal:
                wanted = TaskStatus(
                    FrameworkId(""),
                    task.info.task_id,
                    AgentId(agent_id),
                    TaskState.UNREACHABLE,
                    reason=Reason.AGENT_DISCONNECTED,
                )
                self._service.send_updates([self._service.cluster.update(wanted)])

    def preempt(self, *task_ids: str, grace_s: float = 30.0, reason: str = "") -> None:
        """Ask for tasks of one agent and role to be ended; what becomes of them the test says.

        Raises:
            NotFound: if one was not launched.
            Conflict: if they are of several agents or roles, or no framework is subscribed.
        """
        tasks = self._service.cluster.tasks
        for task_id in task_ids:
            if task_id not in tasks:
                raise NotFound(f"no task {task_id} was launched")
        places = {(tasks[task_id].agent_id, tasks[task_id].role) for task_id in task_ids}
        if len(places) != 1:
            raise Conflict("a preemption is of tasks of one agent and role")
        agent_id, role = places.pop()
        request = pb.PreemptRequest(
            task_ids=task_ids,
            agent_id=agent_id,
            grace_ms=round(grace_s * 1000),
            role=role,
            reason=reason,
        )
        self._subscribed_stream().send(pb.Event(preempt_request=request))

    def refuse_next(self, error: CroupierError) -> None:
        """Answer the next call but a heartbeat with `error`; SUBSCRIBE by ending the stream."""
        self._service.refusals.append(error)

    def mute(self) -> None:
        """Send nothing more on this stream, not even heartbeats; calls are still decided."""
        self._subscribed_stream().is_muted = True

    def disconnect(self, error: CroupierError | None = None) -> None:
        """End the stream: at once and without a word, or by telling `error`."""
        stream = self._subscribed_stream()
        if error is None:
            stream.drop()
        else:
            stream.close(error)
        self._service.forget(stream)

    def follow(self, leader: str = "") -> None:
        """Lead no more: end the stream, and every one that comes, and name `leader`."""
        word = f"{leader} leads" if leader else "no master leads now"
        self._service.follow(NotLeader(f"not the leader; {word}", leader))

    def take_over(self, other: FakeMaster) -> None:
        """Lead in place of `other`, which follows from now on.

        This master knows the framework and its tasks, as a new leader does from the registry;
        offers and verdicts are gone, and what was launched by an ACCEPT is not launched again.
        """
        other.follow(self.address)
        self._service.inherit(other._service)
        self._offers_made = other._offers_made

    def lead(self) -> None:
        """Take frameworks in again after `follow`; what was known is known."""
        self._service.follows = None

    def _subscribed_stream(self) -> Stream:
        if self._service.stream is None:
            raise Conflict("no framework is subscribed")
        return self._service.stream

    async def _until(self, find: Callable[[], FoundT | None], what: str) -> FoundT:
        """Wait until `find` finds something."""
        changed = self._service.changed
        try:
            async with asyncio.timeout(self._timeout_s):
                while (found := find()) is None:
                    changed.clear()
                    await changed.wait()
                return found
        except TimeoutError:
            came = ", ".join(call.kind for call in self.calls) or "nothing"
            raise AssertionError(f"no {what} within {self._timeout_s} s; came: {came}") from None
