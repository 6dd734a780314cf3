"""Conversion of peers' messages to events, in tests without an event loop."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TypeVar

from croupier.master.core.effects import SessionId
from croupier.master.core.events import FrameworkCalled
from croupier.master.core.step import Event
from croupier.master.session import FrameworkSession
from croupier.master.wire import from_agent, from_framework
from croupier.v1 import agent_pb2, framework_pb2

T = TypeVar("T")


def call_from_wire(
    session: SessionId, wire: framework_pb2.Call, seal: from_framework.Seal | None = None
) -> FrameworkCalled:
    """Convert a call without yielding to an event loop; by default there is no key for secrets."""
    seal = seal or FrameworkSession(session).seal
    return _at_once(from_framework.call_from_wire(session, wire, seal))


def report_from_wire(session: SessionId, wire: agent_pb2.Report) -> Event:
    """Convert a report without yielding to an event loop."""
    return _at_once(from_agent.report_from_wire(session, wire))


def _at_once(reading: Coroutine[object, None, T]) -> T:
    while True:
        try:
            reading.send(None)
        except StopIteration as done:
            value: T = done.value
            return value
