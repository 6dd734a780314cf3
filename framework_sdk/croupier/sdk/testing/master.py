"""A master for tests of frameworks: real gRPC on loopback, the real core, offers by the test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Self

import grpc

from croupier.master.core import messages, on_agent, on_allocation, on_gang, on_submit, on_task
from croupier.master.core.effects import Save, Send
from croupier.master.core.task_queues import shape_of
from croupier.model.errors import Conflict, CroupierError, NotFound, NotLeader
from croupier.model.ids import AgentId, OfferId, Role, TaskId
from croupier.model.isolation import Usage
from croupier.model.resources import Resources
from croupier.model.task import MASTER_SEQUENCE, Reason, Source, TaskInfo, TaskState, TaskStatus
from croupier.model.task_transitions import REPORTABLE, TRANSITIONS
from croupier.net.address import Address
from croupier.net.outbox import unless_encoded
from croupier.net.task_scope import end
from croupier.net.transport import MAX_MESSAGE_BYTES, bind, make_server
from croupier.process.clock import SystemClock
from croupier.sdk.testing.core import Behaviour, description, with_room
from croupier.sdk.testing.service import Observed, Service
from croupier.v1 import framework_pb2 as pb


class FakeMaster(Observed):
    """Serves one framework at a time, offers what the test offers, and records every call.

        async with FakeMaster() as master:
            framework = MyFramework(master=master.address)
            running = asyncio.create_task(framework.run())
            await master.subscribed()
            master.offer("cpus:4;mem:1GB")
            call = await master.next_call("accept")
            await master.update(call.tasks[0].task_id, TaskState.RUNNING)
            await framework.stop()
            await running

    The master's own core decides every call. A wait that takes over `timeout_s` seconds raises an
    AssertionError that lists the calls that came instead.
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
            port: to listen on; 0 takes any that is free.
            auto_run: whether launched tasks go to STARTING, RUNNING and FINISHED at once.
            heartbeat_s: the interval of heartbeats, as announced to the framework.
            max_message_bytes: the size of the largest call, as announced to the framework.
            resend_s: the interval at which unacknowledged updates are sent again.
            timeout_s: the limit of the test's waits.
        """
        self._port, self._clock = port, SystemClock()
        behaviour = Behaviour(self._clock, auto_run, heartbeat_s, max_message_bytes, resend_s)
        super().__init__(Service(behaviour), timeout_s)
        self._server = make_server()
        self._ticking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        read = pb.FrameworkServiceConnectRequest.FromString
        write = unless_encoded(pb.FrameworkServiceConnectResponse.SerializeToString)
        handler = grpc.stream_stream_rpc_method_handler(self._service.Connect, read, write)
        methods, add = {"Connect": handler}, self._server.add_generic_rpc_handlers
        add((grpc.method_handlers_generic_handler("croupier.v1.FrameworkService", methods),))
        self._port = bind(self._server, Address("127.0.0.1", self._port))
        await self._server.start()
        self._ticking = asyncio.create_task(self._service.tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        """End all streams and stop listening; a second time changes nothing."""
        self._service.end_all(None)
        await self._server.stop(grace=None)
        ticking, self._ticking = self._ticking, None
        if ticking is not None:
            if ticking.done():
                ticking.result()
            await end(ticking)

    @property
    def address(self) -> str:
        """HOST:PORT, for the framework's `master`."""
        return f"127.0.0.1:{self._port}"

    def offer(
        self,
        resources: Resources | str,
        agent_id: str = "a1",
        hostname: str = "h1",
        attributes: Mapping[str, str] | None = None,
        lease_s: float = 10.0,
        http_address: str = "",
        role: str | None = None,
        isolation: Iterable[str] | None = None,
    ) -> str:
        """Offer resources of an agent, whatever it had before, and return the offer's id.

        Args:
            resources: to offer, as a value or as text.
            agent_id: the agent that has them.
            hostname: of the agent.
            attributes: of the agent.
            lease_s: the lifetime of the offer.
            http_address: of the agent.
            role: one of the framework's; None is the first.
            isolation: features that the agent can enforce, such as `memory`; None is all.

        Raises:
            Conflict: if no framework is subscribed, or not in that role; or if the agent has
                offered or runs some of these ports or items already.
            InvalidRequest: if the resources or the description of the agent are malformed.
        """
        framework, _ = self._subscribed()
        if role is not None and role not in framework.roles:
            raise Conflict(f"the framework is not subscribed in role {role!r}")
        core, allocator = self._service.core, self._service.core.state.allocator
        amount = Resources.parse(resources) if isinstance(resources, str) else resources
        said = description(agent_id, hostname, attributes, http_address, isolation)
        agent = with_room(core, said, amount)
        own = framework.roles[0] if role is None else Role(role)
        grant = allocator.charges.grant(framework.framework_id, own, agent.agent_id, amount)
        offered = on_allocation.offer(core.state, grant, lease_s, core.now())
        core.perform(chain([Save(agent.record())], offered))
        return next(reversed(framework.offers))

    async def place(
        self,
        *task_ids: str,
        agent_id: str = "a1",
        hostname: str = "h1",
        attributes: Mapping[str, str] | None = None,
        http_address: str = "",
        isolation: Iterable[str] | None = None,
    ) -> list[TaskInfo]:
        """Wait until these submitted tasks are queued, and launch them on an agent.

        Without ids, launch all that are queued, at least one. The agent gets room for them,
        whatever their constraints say; the other arguments are those of `offer`.

        Returns:
            The tasks, in order.
        """
        found = await self._until(lambda: self._queued(task_ids), f"queued {task_ids or 'tasks'}")
        said = description(agent_id, hostname, attributes, http_address, isolation)
        core = self._service.core
        for task in found:
            if task.queued is None:
                # It was placed with another task of its group or gang.
                continue
            unit = core.state.frameworks[task.framework_id].queued_with(task)
            shape = shape_of([each.info for each in unit], task.queued.placement)
            agent = with_room(core, said, shape.unit)
            place = (task.framework_id, task.role, agent.agent_id)
            grant = core.state.allocator.charges.grant(*place, shape.unit, shape)
            if grant.places:
                launched = on_gang.launch_gang(core.state, grant, unit, core.now())
            else:
                launched = on_submit.launch_on(core.state, grant, [tuple(unit)], core.now())
            core.perform(chain([Save(agent.record())], launched))
        return [task.info for task in found]

    def rescind(self, offer_id: str, reason: str = "the test says so") -> None:
        """Rescind an offer."""
        framework, _ = self._subscribed()
        core, offer = self._service.core, framework.offers.get(OfferId(offer_id))
        if offer is None:
            self._send(messages.Rescinded(OfferId(offer_id), reason))
        else:
            core.perform(on_allocation.rescind(core.state, offer, reason, core.now()))

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
        usage: Usage | None = None,
    ) -> int:
        """Wait until the task is launched, move it to `state`, and send the update.

        States that no agent reports, such as LOST, come from the master.

        Returns:
            The update's sequence number. With `from_master` it is `MASTER_SEQUENCE` for a
            terminal state, which is sent until it is acknowledged as an agent's is; else 0: such
            an update is sent once and not acknowledged.

        Raises:
            Conflict: if the task has ended, and the framework has acknowledged that.
        """
        await self._until(lambda: self._find_task_state(task_id), f"task {task_id}")
        from_master = from_master or state not in REPORTABLE
        status = TaskStatus(
            framework_id=self._service.framework_id,
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
            usage=usage,
        )
        return self._update(status) if from_master else self._service.core.report(status)

    def fail_agent(self, agent_id: str, message: str = "the test says so") -> None:
        """Lose an agent: its offers are rescinded, its live tasks become UNREACHABLE."""
        self._subscribed()
        core, agent = self._service.core, self._service.core.state.agents.get(AgentId(agent_id))
        if agent is None or agent.session is None:
            self._send(messages.AgentFailed(AgentId(agent_id), "", message))
            return
        lost = on_agent.disconnect(core.state, agent, message, core.now())
        core.perform(chain(lost, on_agent.give_up(core.state, agent, message, core.now())))

    def preempt(self, *task_ids: str, grace_s: float = 30.0, reason: str = "") -> None:
        """Ask the framework to end tasks of one agent and role. The test decides how they end.

        Raises:
            NotFound: if one was not launched.
            Conflict: if they are of several agents or roles, or no framework is subscribed.
        """
        framework, _ = self._subscribed()
        wanted = tuple(map(TaskId, task_ids))
        for task_id in wanted:
            if task_id not in framework.tasks:
                raise NotFound(f"no task {task_id} was launched")
        places = {(framework.tasks[each].agent_id, framework.tasks[each].role) for each in wanted}
        if len(places) != 1:
            raise Conflict("a preemption is of tasks of one agent and role")
        [(agent_id, role)] = places
        self._send(messages.PreemptRequested(wanted, agent_id, grace_s, role, reason))

    def refuse_next(self, error: CroupierError, kind: str | None = None) -> None:
        """Refuse the next call with `error`. For SUBSCRIBE it ends the stream.

        With `kind` the next call of that kind; else the next call but a heartbeat.
        """
        self._service.refusals.append((kind, error))

    def mute(self) -> None:
        """Send nothing more on this stream, not even heartbeats; calls are still decided."""
        _, session = self._subscribed()
        self._service.streams.muted.add(session)

    def disconnect(self, error: CroupierError | None = None) -> None:
        """End the stream with `error`, or at once and without one."""
        _, session = self._subscribed()
        self._service.end(session, error)

    def follow(self, leader: str = "") -> None:
        """Stop leading: end every stream, now and later, with the address of `leader`."""
        word = f"{leader} leads" if leader else "no master leads now"
        self._service.follows = NotLeader(f"not the leader; {word}", leader)
        self._service.end_all(self._service.follows)

    def take_over(self, other: FakeMaster) -> None:
        """Lead in place of `other`, which follows from now on.

        This master knows the framework and its tasks, as a new leader does from the registry.
        Offers are void, and no ACCEPT that `other` decided launches its tasks again.
        """
        other.follow(self.address)
        self._service.take_over(other._service)

    def lead(self) -> None:
        """Lead again after `follow`, with the state from before."""
        self._service.follows = None

    def _send(self, message: messages.ToFramework) -> None:
        """Send a message that the core did not decide, if a framework is subscribed."""
        if self.is_connected:
            self._service.core.perform([Send(self._subscribed()[1], message)])

    def _update(self, status: TaskStatus) -> int:
        """Send an update by the master; return its number."""
        core, framework, new = self._service.core, self._service.framework, status.state
        task = framework.tasks.get(status.task_id) if framework is not None else None
        sequence = MASTER_SEQUENCE if new.is_terminal else 0
        if task is None or new not in TRANSITIONS[task.state]:
            # The core refuses a state that the task cannot go to.
            self._send(messages.Updated((replace(status, sequence=sequence),)))
        elif new.is_terminal:
            said = (new, status.reason, status.message)
            core.perform(on_task.end(core.state, task, *said, core.now()))
        else:
            core.perform(on_task.set_status(core.state, task, new, status.reason, status.message))
        return sequence
