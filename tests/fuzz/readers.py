"""Which messages of a stream a daemon can read, and which end the stream.

A stream that ends at its third message reaches little of the core. So most messages are redrawn
until the daemon's own decoder accepts them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from croupier.agent.wire import order_from_wire
from croupier.master.core.effects import SessionId
from croupier.model.errors import CroupierError
from croupier.v1 import agent_pb2, framework_pb2
from tests.fuzz.attack import Attack
from tests.harness.off_the_wire import call_from_wire, report_from_wire

# Part of messages that are kept although they cannot be read, or end the stream.
_KEPT: Final = 0.03
_DRAWS: Final = 6
_SESSION: Final = SessionId(1)
# Members of oneofs that end a stream, or are legal only as its first message.
_ENDING: Final = frozenset(
    {"subscribe", "teardown", "register", "register_page", "goodbye", "error", "registered"}
)
_READERS: Final[dict[str, Callable[[Any], object]]] = {
    framework_pb2.Call.DESCRIPTOR.full_name: lambda call: call_from_wire(_SESSION, call),
    agent_pb2.Report.DESCRIPTOR.full_name: lambda report: report_from_wire(_SESSION, report),
    agent_pb2.Order.DESCRIPTOR.full_name: order_from_wire,
}


def drawn(attack: Attack, make: Callable[[], Any]) -> Any:
    """Return a message from `make`, which is mostly one that goes on with the stream."""
    message = make()
    for _ in range(_DRAWS):
        if attack.rng.random() < _KEPT or _goes_on(message):
            break
        message = make()
    return message


def _goes_on(message: Any) -> bool:
    kinds = message.DESCRIPTOR.oneofs
    if any(message.WhichOneof(kind.name) in _ENDING for kind in kinds):
        return False
    read = _READERS.get(message.DESCRIPTOR.full_name)
    if read is None or any(message.WhichOneof(kind.name) == "heartbeat" for kind in kinds):
        return True
    try:
        read(message)
    except CroupierError:
        return False
    return True
