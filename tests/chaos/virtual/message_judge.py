"""The part of the judge that observes messages between frameworks and executors.

Each message has data of its own. It arrives at most once, only where it was sent, and not at all if
it is too large or was refused. What a master or an agent drops, it counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence

from croupier.agent.core import effects as fx
from croupier.agent.core.events import Event as AgentEvent
from croupier.master.core import calls
from croupier.master.core.effects import Effect, Happened, Send, SessionId
from croupier.master.core.events import ExecutorSaid, FrameworkCalled
from croupier.master.core.facts import ExecutorMessaged
from croupier.master.core.messages import MessageArrived
from croupier.master.core.step import Event
from croupier.model.agent_orders import ExecutorMessage
from croupier.model.errors import Unavailable
from croupier.model.executor import MAX_MESSAGE_DATA
from croupier.model.verdict import Verdict
from tests.chaos.virtual.machine import Key
from tests.chaos.virtual.task_history import must


class MessageJudge:
    """The observer of the messages of a world.

    Attributes:
        seen: the judge's numbers of what happened, by kind.
    """

    def __init__(self, seen: Counter[str]) -> None:
        self.seen = seen
        # The framework and the executor of each message that may arrive, by its data.
        self._flying: dict[bytes, Key] = {}

    def on_sent(self, data: bytes, key: Key) -> None:
        """Note a message from a framework to a task, or from an executor to its framework."""
        self.seen["messages"] += 1
        if len(data) <= MAX_MESSAGE_DATA:
            self._flying[data] = key

    def on_refused(self, data: bytes) -> None:
        """Check that a refused message has not arrived, and never will."""
        arrived = len(data) <= MAX_MESSAGE_DATA and data not in self._flying
        must(not arrived, f"message {shown(data)} arrived and is refused")
        self._flying.pop(data, None)

    def on_arrived(self, data: bytes, key: Key) -> None:
        """Check that a message was sent to, or by, this executor of this framework, and is new."""
        sent = self._flying.pop(data, None)
        must(sent is not None, f"message {shown(data)} arrives twice, or must not arrive")
        must(sent == key, f"message {shown(data)} of {sent} arrives as one of {key}")
        self.seen["messages arrived"] += 1

    def on_decided(
        self, event: Event, effects: Sequence[Effect], peers: Container[SessionId]
    ) -> None:
        """Check that a master counts each message that it has passed on or dropped.

        `peers`: the sessions of the master.
        """
        sent = [each.message for each in effects if isinstance(each, Send)]
        happened = [each.fact for each in effects if isinstance(each, Happened)]
        counted = [each.outcome for each in happened if isinstance(each, ExecutorMessaged)]
        passed = [each for each in sent if isinstance(each, ExecutorMessage | MessageArrived)]
        match event:
            case FrameworkCalled(call=calls.SendMessage()) if happened:
                errors = [each.error for each in sent if isinstance(each, Verdict)]
                is_dropped = isinstance(errors[0], Unavailable)
            case ExecutorSaid(session):
                is_dropped = session in peers and not passed
            case _:
                # No message, or a call that was answered before.
                return
        expected = ["sent"] * len(passed) + ["dropped"] * is_dropped
        must(counted == expected, f"{event} is {expected}, and counted as {counted}")
        self.seen["messages dropped"] += is_dropped

    def on_agent_step(self, event: AgentEvent, effects: Sequence[fx.Effect]) -> None:
        """Check that an agent counts each message to an executor that it does not pass on."""
        dropped = [each for each in effects if isinstance(each, fx.Dropped)]
        self.seen["messages dropped"] += sum(each.what != "update" for each in dropped)
        if isinstance(event, ExecutorMessage):
            passed = [each for each in effects if isinstance(each, fx.ToExecutor)]
            must(len(passed) + len(dropped) == 1, f"{event} is {passed}, counted as {dropped}")


def shown(data: bytes) -> str:
    """Return the beginning of a message."""
    return repr(data[:40])
