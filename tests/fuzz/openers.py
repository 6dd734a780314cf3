"""Legal beginnings of streams, so that the requests after them are decided and not refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from google.protobuf.message import Message

from croupier.v1 import (
    agent_pb2,
    exec_pb2,
    executor_pb2,
    framework_pb2,
    operator_pb2,
    resources_pb2,
)
from tests.fuzz.messages import Messages
from tests.fuzz.parties import FUZZED_AGENT
from tests.fuzz.values import Values

Opener = Callable[[Messages, Values], Iterator[Message]]


def _subscribe(messages: Messages, values: Values) -> Iterator[Message]:
    call: framework_pb2.Call = framework_pb2.Call()
    subscribe = call.subscribe
    if values.rng.random() < 0.3:
        # With a few of its fields as they come.
        subscribe.MergeFrom(messages.message(framework_pb2.Subscribe.DESCRIPTOR))  # type: ignore[arg-type]
    info = subscribe.framework
    info.name, info.hostname, info.webui_url = "fuzz", "host", ""
    info.failover_timeout_ms = values.rng.choice((0, 0, 100, 60_000))
    del info.roles[:], info.labels[:]
    info.roles.extend(
        values.rng.sample(("fuzz", "fuzz/a", "fuzz/b", "*"), values.rng.choice((1, 2)))
    )
    known = values.known("framework_id")
    info.framework_id = known if known and values.rng.random() < 0.3 else ""
    subscribe.client_id = values.rng.choice(("one", "two", "three"))
    del subscribe.suppressed_roles[:]
    if values.rng.random() < 0.7:
        del subscribe.demands[:]
    yield framework_pb2.FrameworkServiceConnectRequest(calls=[call])


def _register(_: Messages, values: Values) -> Iterator[Message]:
    register = agent_pb2.Register(
        hostname=values.rng.choice(("fuzz1", "fuzz2", "fuzz3")),
        resources=resources_pb2.Resources(cpus_milli=4000, mem_milli=8_192_000),
        boot_id="boot",
        http_address="127.0.0.1:9",
    )
    # With authentication an agent has one id.
    known = values.known("agent_id") or FUZZED_AGENT
    if values.rng.random() < 0.7:
        register.agent_id = known
    yield agent_pb2.AgentServiceConnectRequest(reports=[agent_pb2.Report(register=register)])


def _exec(_: Messages, values: Values) -> Iterator[Message]:
    start = exec_pb2.ExecStart(
        framework_id=values.known("framework_id") or "",
        task_id=values.known("task_id") or "t1",
        command=exec_pb2.ExecCommand(argv=["true"], has_input=values.rng.random() < 0.7),
    )
    if values.rng.random() < 0.5:
        start.command.terminal.rows, start.command.terminal.columns = 24, 80
    yield operator_pb2.ExecTaskRequest(start=start)


def _call_back(_: Messages, values: Values) -> Iterator[Message]:
    # Seldom one that the master waits for: such an id is valid once, and for one agent.
    exec_id = values.known("exec_id") or f"{values.rng.getrandbits(128):032x}"
    yield agent_pb2.AgentServiceExecRequest(exec_id=exec_id)


def _executor(_: Messages, values: Values) -> Iterator[Message]:
    # The daemons of a run refuse it: only an agent with an executor has this service.
    token = values.known("token") or f"{values.rng.getrandbits(128):032x}"
    listed = [values.known("task_id") or "t1"]
    register = executor_pb2.RegisterExecutor(token=token, task_ids=listed)
    yield executor_pb2.ExecutorServiceConnectRequest(register=register)


OPENERS: Final[dict[str, Opener]] = {
    "/croupier.v1.FrameworkService/Connect": _subscribe,
    "/croupier.v1.AgentService/Connect": _register,
    "/croupier.v1.AgentService/Exec": _call_back,
    "/croupier.v1.OperatorService/ExecTask": _exec,
    "/croupier.v1.ExecutorService/Connect": _executor,
}
