"""Output and files of tasks, which the master reads from agents for its callers.

Rule: a follower gets each byte once, in order. If the agent breaks off, restarts or comes back at
another address, the master continues at the offset that it has reached, with a new link, and after
it has checked the caller's permission again. It reads no faster than its caller does.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from copy import deepcopy
from typing import Any, Final
from urllib.parse import quote

from croupier.master.access.caller import Caller
from croupier.master.access.rate_limits import ALL, Pace, counted
from croupier.master.core.state import State
from croupier.master.journal.watch import CHECK_S, check_credential
from croupier.master.leadership.leadership import Leadership
from croupier.master.services.output_links import STREAMS
from croupier.master.services.task_places import NamedTask, TaskPlace, find_place, rechecks
from croupier.model.access import Action
from croupier.model.clock import Clock
from croupier.model.errors import InvalidRequest, NotFound, NotLeader, Unavailable
from croupier.model.limits import MIB
from croupier.model.principal import Principal
from croupier.net.backoff import Backoff
from croupier.net.credentials import ClientSecurity
from croupier.net.output_links import files_path, output_path, usage_path
from croupier.process.http.fetch import AgentFiles, LinkRefused
from croupier.v1 import operator_pb2 as pb

# Reads at the same time, and of one caller.
MAX_READS: Final = 512
READS_PER_CALLER: Final = 64
# Seconds for which an agent that does not answer is asked again.
PATIENCE_S: Final = 10.0
FOLLOW_PATIENCE_S: Final = 120.0
# A task that is queued, or whose process has not started, is looked at again after this time.
POLL_S: Final = 0.5
# An agent that refuses a new link this often has another clock, or another key.
MOST_REFUSALS: Final = 3
# Bytes of an answer with the entries of a directory, about.
MOST_LISTED: Final = 2 << 20
# Fields of an agent's answer, and of the messages, with their factors.
_USAGE: Final = {"cpu_ms": ("cpu_ms", 1.0), "memory_peak": ("memory_peak_bytes", 1.0)} | {
    name: (name, 1.0) for name in ("pids_peak", "read_bytes", "written_bytes", "disk_bytes")
}
_LIMITS: Final = {
    "cpus": ("cpus_milli", 1000.0),
    "memory_bytes": ("mem_milli", 1000 / MIB),
    "disk_bytes": ("disk_milli", 1000 / MIB),
    "pids": ("pids", 1.0),
    "files": ("files", 1.0),
}

Chunk = pb.ReadTaskFileResponse


class TaskFiles:
    """Reads files of tasks for callers."""

    def __init__(self, leadership: Leadership, clock: Clock, security: ClientSecurity) -> None:
        """Read as the master that leads; `security` names the authorities of agents with TLS."""
        self._leadership, self._clock = leadership, clock
        self._agents = AgentFiles(lambda: security)
        self._reads: Counter[str] = Counter()
        self._pace = Pace(clock)

    async def close(self) -> None:
        """Close the connections to agents."""
        await self._agents.close()

    async def read(
        self, request: pb.ReadTaskFileRequest, caller: Caller
    ) -> AsyncGenerator[Chunk, None]:
        """Yield a part of a file; the first chunk, which may be empty, tells where it begins.

        Raises:
            NotFound: if the caller may see no such task, or there is no such file.
            PermissionDenied: if the caller may see the task, but not the file, or may not any more.
            InvalidRequest: if the request is malformed.
            Unavailable: if there are too many reads, the agent cannot be reached for long, or the
                term has ended.
            Unauthenticated: if the caller's token was revoked meanwhile.
        """
        check_part(request)
        leadership, named, rest = self._leadership, NamedTask.of(request), deepcopy(request)
        action = Action.READ_OUTPUT if rest.path in STREAMS else Action.READ_FILES
        most_s = FOLLOW_PATIENCE_S if rest.follow else PATIENCE_S
        with self._a_read(caller.rate_key):
            patience, refusals, has_begun = _Patience(self._clock, most_s), 0, False
            while True:
                check_credential(leadership.term(), caller)
                place = await self._find(named, action, caller.principal)
                named = place.named
                try:
                    check = rechecks(leadership.term, place, action, caller)
                    chunks = _guarded(self._once(place, rest), check)
                    async with aclosing(chunks):
                        async for chunk in chunks:
                            _advance(rest, chunk)
                            if chunk.data or not has_begun:
                                has_begun = True
                                yield chunk
                            if chunk.data:
                                patience, refusals = _Patience(self._clock, most_s), 0
                                await self._pace.passed(len(chunk.data))
                    return
                except NotFound:
                    # The agent may not have the task yet.
                    if not (rest.follow and place.is_live):
                        raise
                    await asyncio.sleep(POLL_S)
                except LinkRefused as error:
                    refusals += 1
                    if refusals >= MOST_REFUSALS:
                        raise Unavailable(f"agent {place.agent_id}: {error}") from None
                    await patience.wait(error)
                except NotLeader:
                    raise
                except Unavailable as error:
                    await patience.wait(error)

    async def list(self, named: NamedTask, path: str, caller: Caller) -> dict[str, Any]:
        """Return the entries of a directory, as the agent has them. Raises as `read`."""
        with self._a_read(caller.rate_key):
            patience = _Patience(self._clock, PATIENCE_S)
            while True:
                place = await self._find(named, Action.READ_FILES, caller.principal)
                query = f"list=1&path={quote(path, safe='')}"
                link = self._link(place, files_path(place.framework_id, place.task_id), query)
                try:
                    _check_placed(place)
                    return await self._agents.document(place.agent_id, place.http_address, link)
                except NotLeader:
                    raise
                except Unavailable as error:
                    await patience.wait(error)

    async def use(self, named: NamedTask, caller: Caller) -> dict[str, Any]:
        """Return what a live task has used so far, as the agent has it. Raises as `read`."""
        with self._a_read(caller.rate_key):
            place = await self._find(named, Action.READ_OUTPUT, caller.principal)
            _check_placed(place)
            link = self._link(place, usage_path(place.framework_id, place.task_id))
            return await self._agents.document(place.agent_id, place.http_address, link)

    async def _once(
        self, place: TaskPlace, part: pb.ReadTaskFileRequest
    ) -> AsyncGenerator[Chunk, None]:
        """Ask the agent once, and yield what it answers, beginning with an empty chunk."""
        _check_placed(place)
        ids = place.framework_id, place.task_id
        path = output_path(*ids, part.path) if part.path in STREAMS else files_path(*ids)
        link = self._link(place, path, query_of(part))
        async with self._agents.read(place.agent_id, place.http_address, link) as found:
            offset = found.offset
            yield Chunk(offset=offset, size=found.size)
            async with aclosing(found.chunks) as chunks:
                async for data in chunks:
                    yield Chunk(offset=offset, data=data, size=found.size)
                    offset += len(data)

    def _link(self, place: TaskPlace, path: str, query: str = "") -> str:
        """Return the encoded path with a query, signed if agents require that; raises NotLeader."""
        keys, link = self._leadership.term().links, quote(path)
        if keys is not None:
            link = keys.link_to(place.agent_id, path, self._clock.wall_ms() / 1000)
        return f"{link}{'&' if '?' in link else '?'}{query}" if query else link

    async def _find(self, named: NamedTask, action: Action, caller: Principal) -> TaskPlace:
        def find(state: State) -> TaskPlace:
            return find_place(state, named, action, state.permissions(caller))

        return await self._leadership.read(find)

    @contextmanager
    def _a_read(self, key: str) -> Iterator[None]:
        refusal = "too many readers of task files at this master; try again later"
        mine = counted(self._reads, key, READS_PER_CALLER, refusal)
        with counted(self._reads, ALL, MAX_READS, refusal), mine:
            yield


async def _guarded(
    chunks: AsyncGenerator[Chunk, None], check: Callable[[], None]
) -> AsyncGenerator[Chunk, None]:
    """Yield chunks as long as `check`, which is called twice a second, raises nothing."""
    try:
        while True:
            coming = asyncio.ensure_future(anext(chunks))
            try:
                while not coming.done():
                    check()
                    await asyncio.wait({coming}, timeout=CHECK_S)
            finally:
                if not coming.done():
                    coming.cancel()
                    await asyncio.wait({coming})
            try:
                chunk = coming.result()
            except StopAsyncIteration:
                return
            yield chunk
    finally:
        await chunks.aclose()


class _Patience:
    """Pauses between attempts, for at most some seconds."""

    def __init__(self, clock: Clock, most_s: float) -> None:
        self._clock, self._until = clock, clock.now() + most_s
        self._backoff = Backoff(0.1, 2.0, random.Random())

    async def wait(self, error: Unavailable) -> None:
        """Wait for the next attempt; raise `error` if there is none."""
        if self._clock.now() >= self._until:
            raise error
        await asyncio.sleep(self._backoff.next_s())


def _check_placed(place: TaskPlace) -> None:
    if place.executor_id:
        raise InvalidRequest(
            f"task {place.task_id} has no files of its own: it runs in an executor,"
            f" the task {place.executor_id}, which has them"
        )
    if not place.agent_id:
        raise NotFound(f"task {place.task_id} is queued: it has written nothing yet")
    if not place.http_address:
        raise Unavailable(f"agent {place.agent_id} is not registered, or serves no output")


def check_part(part: pb.ReadTaskFileRequest) -> None:
    """Raise InvalidRequest if a request names no file, or several places to begin at."""
    if not part.path:
        raise InvalidRequest("name a file: stdout, stderr or a path below the sandbox")
    if part.HasField("offset") + bool(part.tail_lines) + bool(part.tail_bytes) > 1:
        raise InvalidRequest("give only one of offset, tail and tail_bytes")


def query_of(part: pb.ReadTaskFileRequest) -> str:
    """Return the query by which an agent is asked, in encoded form, without a link's."""
    given: dict[str, Any] = {
        "offset": part.offset if part.HasField("offset") else None,
        "limit": part.limit if part.HasField("limit") else None,
        "tail": part.tail_lines or None,
        "tail_bytes": part.tail_bytes or None,
        "follow": 1 if part.follow else None,
        "path": None if part.path in STREAMS else quote(part.path, safe=""),
    }
    return "&".join(f"{name}={value}" for name, value in given.items() if value is not None)


def _advance(part: pb.ReadTaskFileRequest, chunk: Chunk) -> None:
    """Leave what comes after a chunk."""
    part.offset = chunk.offset + len(chunk.data)
    if part.HasField("limit"):
        part.limit = max(0, part.limit - len(chunk.data))
    part.tail_lines = part.tail_bytes = 0


def listing_to_wire(found: Mapping[str, Any]) -> pb.ListTaskFilesResponse:
    """Return the message for a listing, which may be false; raises Unavailable if malformed."""
    answer, size = pb.ListTaskFilesResponse(), 0
    try:
        for entry in found["entries"]:
            size += len(entry["name"]) * 4 + 40
            if size > MOST_LISTED:
                answer.cut = True
                return answer
            answer.files.add(
                name=entry["name"],
                kind=entry["kind"],
                size=entry["size"],
                modified_ms=entry["modified_ms"],
                mode=entry["mode"],
            )
        answer.cut = bool(found["is_cut"])
    except (KeyError, TypeError, ValueError, UnicodeError):
        raise Unavailable("the agent answers in another form") from None
    return answer


def use_to_wire(found: Mapping[str, Any]) -> pb.GetTaskUseResponse:
    """Return the message for an agent's answer; raises Unavailable if it has another form."""
    answer = pb.GetTaskUseResponse()
    try:
        if found.get("usage") is not None:
            answer.usage.SetInParent()
            _fill(answer.usage, found["usage"].get, _USAGE)
        limits = found.get("limits") or {}
        _fill(answer.limits, limits.get, _LIMITS)
        answer.max_completion_ms = limits.get("completion_ms") or 0
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise Unavailable("the agent answers in another form") from None
    return answer


def _fill(
    message: Any, get: Callable[[str], float | None], fields: Mapping[str, tuple[str, float]]
) -> None:
    for name, (field, factor) in fields.items():
        number = (get(name) or 0) * factor
        if number < 0:
            raise ValueError(name)
        setattr(message, field, round(number))
