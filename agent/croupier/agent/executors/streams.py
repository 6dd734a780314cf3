"""The streams of executors, whichever protocol they speak.

Rule: an executor proves by its token that it is the process which the agent started. The token is
made of a key in the work dir and the name of the run, so the next agent on the work dir knows it.
What an executor sends waits while the agent has not recorded what came before; what it is sent is
bounded, and it is cut off if it does not read that.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from croupier.agent.core import effects as fx
from croupier.agent.core import events as ev
from croupier.agent.core.events import Event
from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import Key
from croupier.model.clock import Clock
from croupier.model.errors import Unauthenticated, Unavailable
from croupier.model.executor import EXECUTOR_MESSAGES, TOKEN_VARIABLE, check_message, message_cost
from croupier.model.ids import TaskId
from croupier.model.token_bucket import Bucket
from croupier.process.durable_files import replace_file
from croupier.process.inbox import Inbox

DIRECTORY: Final = "executors"
# Messages that wait for one executor, and their bytes.
MOST_QUEUED: Final = 10_000
MOST_QUEUED_BYTES: Final = 16 * 1024 * 1024
# Updates of one executor that are not recorded yet.
MOST_UPDATES: Final = 64
# Streams of all executors.
MOST_STREAMS: Final = 1_000
_KEY_BYTES: Final = 32

Message = fx.Welcome | fx.RunTask | fx.EndTask | fx.UpdateDurable | fx.Said | fx.ShutDown


class Stream:
    """A stream on which an executor has registered.

    Attributes:
        number: names it in the core; a later stream has a higher one.
        error: why it has ended; empty if the executor ended it.
    """

    def __init__(self, number: int, key: Key, now: float) -> None:
        self.number, self.key, self.error = number, key, ""
        self.messages = Bucket(*EXECUTOR_MESSAGES, now)
        self._queue: asyncio.Queue[Message | None] = asyncio.Queue()
        self._bytes = 0
        self._updates = asyncio.Semaphore(MOST_UPDATES)
        self._is_closed = False

    def put(self, message: Message) -> bool:
        """Queue a message, and return whether it fits.

        If there is no room, a message of the framework is dropped, and any other ends the stream:
        the executor does not read.
        """
        size = _size_of(message)
        if isinstance(message, fx.UpdateDurable):
            self._updates.release()
        if self._is_closed:
            return False
        if self._queue.qsize() < MOST_QUEUED and self._bytes + size <= MOST_QUEUED_BYTES:
            self._bytes += size
            self._queue.put_nowait(message)
            return True
        if not isinstance(message, fx.Said):
            self.close("the executor does not read what its agent sends")
        return False

    def close(self, error: str) -> None:
        """End the stream after what is queued."""
        if not self._is_closed:
            self._is_closed, self.error = True, error
            self._queue.put_nowait(None)
            self._updates.release()

    async def take(self) -> Message | None:
        """Return the next message; None once the stream is to end."""
        message = await self._queue.get()
        if message is not None:
            self._bytes -= _size_of(message)
        return message

    async def wait_for_room(self) -> None:
        """Wait while many updates of the executor are not recorded yet, and the stream is open."""
        await self._updates.acquire()
        if self._is_closed:
            # Nothing is recorded for it any more: let the next one go on.
            self._updates.release()


class Streams:
    """All streams of executors of one agent; they begin and end here."""

    def __init__(
        self,
        state: AgentState,
        inbox: Inbox[Event],
        work_dir: Path,
        clock: Clock,
        dropped: Callable[[str], None],
    ) -> None:
        """Feed `inbox`; `dropped` is called with the direction of each dropped message."""
        self._state, self._inbox, self._clock, self._dropped = state, inbox, clock, dropped
        self.directory = work_dir / DIRECTORY
        # Beside the directory, not in it: boxes and containers see that.
        self.key_file = work_dir / "executors.key"
        self._key = b""
        self._last = 0
        self._streams: dict[int, Stream] = {}

    def prepare(self) -> None:
        """Make the directory, which all users may pass, and the key of the tokens.

        Raises OSError if that fails.
        """
        if self._key:
            return
        self.directory.mkdir(mode=0o711, exist_ok=True)
        self.directory.chmod(0o711)
        with suppress(FileNotFoundError):
            self._key = self.key_file.read_bytes()
        if len(self._key) != _KEY_BYTES:
            self._key = secrets.token_bytes(_KEY_BYTES)
            replace_file(self.key_file, self._key)

    def token_of(self, run: str) -> str:
        """Return the token of an executor's run."""
        return hmac.new(self._key, run.encode(), "sha256").hexdigest()

    def key_of(self, token: str) -> Key:
        """Return the executor that has the token. O(executors).

        Raises Unauthenticated if no live executor has it.
        """
        for key in self._state.executors:
            run = self._state.tasks[key].run
            if hmac.compare_digest(token.encode(errors="replace"), self.token_of(run).encode()):
                return key
        raise Unauthenticated(f"no executor of this agent has this token: see {TOKEN_VARIABLE}")

    def open(self, key: Key, listed: frozenset[TaskId]) -> Stream:
        """Register an executor, which has the tasks `listed`, on a new stream.

        Raises Unavailable if there are too many streams.
        """
        if len(self._streams) >= MOST_STREAMS:
            raise Unavailable("the agent has no room for another stream of an executor")
        self._last += 1
        stream = self._streams[self._last] = Stream(self._last, key, self._clock.now())
        self._inbox.put_now(ev.ExecutorRegistered(key, stream.number, listed))
        return stream

    async def updated(self, stream: Stream, update: ev.ExecutorUpdated) -> None:
        """Record an update; wait while many were not recorded yet."""
        await stream.wait_for_room()
        await self._inbox.put(update)

    async def said(self, stream: Stream, data: bytes) -> None:
        """Pass a message on to the framework, or drop it if there are too many.

        Raises InvalidRequest if it is too large.
        """
        check_message(data)
        if stream.messages.try_take(message_cost(data), self._clock.now()):
            await self._inbox.put(ev.ExecutorSaid(stream.key, stream.number, data))
        else:
            self._dropped("to_framework")

    def ended(self, stream: Stream) -> None:
        """Forget a stream that has ended."""
        if self._streams.pop(stream.number, None) is not None:
            stream.close("")
            self._inbox.put_now(ev.ExecutorLeft(stream.key, stream.number))

    def perform(self, effect: fx.ToExecutor | fx.CloseExecutor) -> None:
        """Queue a message on its stream, or end the stream, if it is open."""
        stream = self._streams.get(effect.connection)
        if stream is None:
            return
        if isinstance(effect, fx.CloseExecutor):
            stream.close(effect.message)
        elif not stream.put(effect.message) and isinstance(effect.message, fx.Said):
            self._dropped("to_executor")


def _size_of(message: Message) -> int:
    if isinstance(message, fx.RunTask | fx.Welcome):
        return 200 + message.info.size
    return 200 + (len(message.data) if isinstance(message, fx.Said) else 0)
