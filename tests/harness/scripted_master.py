"""A scripted master: it registers agents, sends orders and records reports."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc.aio

from croupier.model.errors import CroupierError
from croupier.model.ids import FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Command, TaskInfo, TaskState
from croupier.net.address import Address
from croupier.net.errors import error_to_wire
from croupier.net.transport import bind, make_server
from croupier.v1 import agent_pb2 as pb
from croupier.v1 import framework_pb2, task_pb2
from croupier.v1.agent_pb2_grpc import AgentServiceServicer, add_AgentServiceServicer_to_server
from croupier.wire.task import task_to_wire
from tests.harness.eventually import eventually

F = FrameworkId("F1")


@dataclass
class Session:
    """One stream of an agent."""

    register: pb.Register | None = None
    reports: list[pb.Report] = field(default_factory=list)
    goodbye: pb.Goodbye | None = None
    heartbeats: int = 0
    is_over: bool = False
    orders: asyncio.Queue[list[pb.Order] | None] = field(default_factory=asyncio.Queue)


class ScriptedMaster(AgentServiceServicer):
    """Listens on a free port of loopback.

    Attributes:
        acknowledges: whether it acknowledges each update at once.
        is_silent: whether it leaves REGISTER unanswered.
        link_key: signs links to output; if it is not empty, the agent must require them.
        heartbeat_ms: announced to agents; the master itself sends heartbeats only on demand.
        sessions: all sessions, oldest first.
        epoch: of this master, in each message.
        credentials: of its listener; None is plain text.
        status: of streams that `hang_up` ends; None is OK.
        statuses: all updates in the order of arrival, repeated ones included.
    """

    def __init__(self) -> None:
        self.acknowledges = True
        self.is_silent = False
        self.link_key = b""
        self.heartbeat_ms = 60_000
        self.sessions: list[Session] = []
        self.statuses: list[task_pb2.TaskStatus] = []
        self.refusal: CroupierError | None = None
        self.epoch = 0
        self.cluster = ""
        self.status: grpc.StatusCode | None = None
        self.credentials: grpc.ServerCredentials | None = None
        self._server: grpc.aio.Server | None = None
        self.address = Address("127.0.0.1", 0)

    async def start(self) -> None:
        """Listen; after `stop`, on the same port as before."""
        self._server = make_server()
        add_AgentServiceServicer_to_server(self, self._server)
        self.address = Address("127.0.0.1", bind(self._server, self.address, self.credentials))
        await self._server.start()

    async def stop(self) -> None:
        """Cut every stream."""
        if self._server is not None:
            await self._server.stop(grace=None)
            self._server = None

    @property
    def session(self) -> Session:
        """The newest session."""
        return self.sessions[-1]

    async def agent(self, sessions: int = 1) -> Session:
        """Wait until agents have registered `sessions` times."""

        def registered() -> bool:
            return len(self.sessions) >= sessions and self.sessions[-1].register is not None

        await eventually(registered, what=f"session {sessions} of an agent")
        return self.session

    def order(self, *orders: pb.Order) -> None:
        """Send orders in one message."""
        self.session.orders.put_nowait(list(orders))

    def launch(self, *tasks: TaskInfo, framework_id: FrameworkId = F) -> None:
        """Send orders to launch tasks."""
        self.order(
            *(
                pb.Order(launch=pb.LaunchTask(framework_id=framework_id, task=task_to_wire(task)))
                for task in tasks
            )
        )

    def kill(self, task_id: str, grace_ms: int | None = None, **more: Any) -> None:
        """Send an order to kill a task."""
        kill = pb.KillTask(framework_id=F, task_id=task_id, **more)
        if grace_ms is not None:
            kill.kill_policy.grace_ms = grace_ms
        self.order(pb.Order(kill=kill))

    def acknowledge(self, task_id: str, sequence: int, framework_id: str = F) -> None:
        """Acknowledge an update."""
        self.order(_acknowledgement(framework_id, task_id, sequence))

    def hang_up(self, error: CroupierError | None = None) -> None:
        """End the newest session."""
        if error is not None:
            self.order(pb.Order(error=error_to_wire(error)))
        self.session.orders.put_nowait(None)

    def of(self, task_id: str) -> list[task_pb2.TaskStatus]:
        """Return the updates of one task, without repeated ones, by sequence."""
        found = {s.sequence: s for s in self.statuses if s.task_id == task_id}
        return [found[number] for number in sorted(found)]

    def states(self, task_id: str) -> list[TaskState]:
        """Return the states that one task went through."""
        return [TaskState(status.state) for status in self.of(task_id)]

    def health(self) -> list[pb.AgentHealth]:
        """Return the health reports of the newest session, in order."""
        reports = self.session.reports
        return [each.health for each in reports if each.HasField("health")]

    def refused(self) -> dict[str, str]:
        """Return why launches of the newest session were refused, by task."""
        return {one.task_id: one.message for health in self.health() for one in health.refused}

    async def state(self, task_id: str, state: TaskState, timeout_s: float = 30.0) -> Any:
        """Wait until a task is in `state`, and return that update."""
        await eventually(
            lambda: state in self.states(task_id),
            timeout_s,
            f"{task_id} {state.name} (it is {self.of(task_id)[-1:]})",
        )
        return next(s for s in self.of(task_id) if TaskState(s.state) is state)

    # grpc.aio also accepts a coroutine that writes; the generated type does not know it.
    async def Connect(  # type: ignore[override]  # noqa: N802 - as in the contract
        self,
        request_iterator: AsyncIterator[pb.AgentServiceConnectRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> None:
        session = Session()
        self.sessions.append(session)
        reading = asyncio.create_task(self._read(session, request_iterator))
        try:
            while (orders := await session.orders.get()) is not None:
                await context.write(
                    pb.AgentServiceConnectResponse(
                        orders=orders, master_epoch=self.epoch, cluster=self.cluster
                    )
                )
            if self.status is not None:
                await context.abort(self.status, "because")
        finally:
            session.is_over = True
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading

    async def _read(
        self, session: Session, requests: AsyncIterator[pb.AgentServiceConnectRequest]
    ) -> None:
        async for request in requests:
            answers: list[pb.Order] = []
            for report in request.reports:
                session.reports.append(report)
                answers += self._answer(session, report)
            if answers:
                session.orders.put_nowait(answers)
        session.is_over = True
        session.orders.put_nowait(None)

    def _answer(self, session: Session, report: pb.Report) -> list[pb.Order]:
        match report.WhichOneof("report"):
            case "register":
                session.register = report.register
                return self._take_in(report.register)
            case "updates":
                self.statuses.extend(report.updates.statuses)
                return self._acknowledged(report.updates.statuses)
            case "heartbeat":
                session.heartbeats += 1
            case "goodbye":
                session.goodbye = report.goodbye
                session.orders.put_nowait(None)
        return []

    def _take_in(self, register: pb.Register) -> list[pb.Order]:
        if self.refusal is not None:
            return [pb.Order(error=error_to_wire(self.refusal))]
        if self.is_silent:
            return []
        registered = pb.Registered(
            agent_id=register.agent_id,
            master_id="M1",
            heartbeat_ms=self.heartbeat_ms,
            takes_health=True,
            link_key=self.link_key,
            requires_links=bool(self.link_key),
        )
        answers = [pb.Order(registered=registered)]
        for task in register.tasks:
            self.statuses.extend(task.unacknowledged)
            answers += self._acknowledged(task.unacknowledged)
        return answers

    def _acknowledged(self, statuses: Any) -> list[pb.Order]:
        if not self.acknowledges:
            return []
        return [_acknowledgement(s.framework_id, s.task_id, s.sequence) for s in statuses]


def beat() -> pb.Order:
    """Return a heartbeat of the master."""
    return pb.Order(heartbeat=framework_pb2.Heartbeat())


def shell(task_id: str, line: str, resources: str = "cpus:0.1;mem:16", **more: Any) -> TaskInfo:
    """Make a task that runs a shell line; `more` goes to TaskInfo or to Command."""
    command = _of_command(more)
    return TaskInfo(
        TaskId(task_id), Command(shell=line, **command), Resources.parse(resources), **more
    )


def program(task_id: str, *argv: str, resources: str = "cpus:0.1;mem:16", **more: Any) -> TaskInfo:
    """Make a task that runs a program; `more` goes to TaskInfo or to Command."""
    command = _of_command(more)
    return TaskInfo(
        TaskId(task_id), Command(argv=argv, **command), Resources.parse(resources), **more
    )


def _of_command(more: dict[str, Any]) -> dict[str, Any]:
    return {name: more.pop(name) for name in ("environment", "user") if name in more}


def _acknowledgement(framework_id: str, task_id: str, sequence: int) -> pb.Order:
    return pb.Order(
        acknowledge=pb.AcknowledgeUpdate(
            framework_id=framework_id, task_id=task_id, sequence=sequence
        )
    )
