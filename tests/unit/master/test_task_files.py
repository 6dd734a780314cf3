"""A reader of a task's output gets each byte once, whatever its agent does meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from croupier.master.access.caller import UNKNOWN_CALLER, Caller
from croupier.master.allocator import Allocator
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.master.services import task_files
from croupier.master.services.task_files import TaskFiles, check_part, listing_to_wire, query_of
from croupier.master.services.task_places import NamedTask, TaskPlace
from croupier.model.access import AccessPolicy, Action, Rule
from croupier.model.errors import InvalidRequest, NotFound, PermissionDenied, Unavailable
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.principal import Principal, PrincipalName
from croupier.net.credentials import ClientSecurity
from croupier.process.clock import SystemClock
from croupier.process.http.fetch import AgentFiles, Interrupted, LinkRefused, Part
from croupier.v1 import operator_pb2 as pb

NAMED = NamedTask(TaskId("t1"), FrameworkId("F1"), AgentId("a1"))
ADS = Role("ads")
STDOUT = pb.ReadTaskFileRequest(task_id="t1", framework_id="F1", agent_id="a1", path="stdout")
FOLLOW = pb.ReadTaskFileRequest(path="stdout", follow=True)
FOLLOW.MergeFrom(STDOUT)


class Agents:
    """Agents that answer by a script: an error, or an offset with chunks and perhaps an error.

    With `go_on` an answer has no end.
    """

    def __init__(self, *answers: Any, go_on: bool = False) -> None:
        self._answers, self.asked, self.go_on = list(answers), list[str](), go_on

    @asynccontextmanager
    async def read(self, _: AgentId, __: str, link: str) -> AsyncIterator[Part]:
        self.asked.append(link.partition("?")[2])
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        offset, *chunks = answer

        async def send() -> AsyncGenerator[bytes, None]:
            for each in chunks:
                if isinstance(each, Exception):
                    raise each
                yield each
            if self.go_on:
                await asyncio.Event().wait()

        yield Part(offset, 100, send())


@pytest.fixture
def state() -> State:
    """Return the state of a master without authentication."""
    return State("m-1", Settings(), Allocator())


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch, state: State) -> Any:
    """Return a function that reads from scripted agents, without pauses."""

    async def no_pause(_: object, error: Unavailable) -> None:
        if str(error) == "given up":
            raise error

    monkeypatch.setattr(task_files._Patience, "wait", no_pause)
    monkeypatch.setattr(task_files, "POLL_S", 0.0)

    def read(
        agents: Agents,
        part: pb.ReadTaskFileRequest,
        *,
        is_live: bool = True,
        caller: Caller = UNKNOWN_CALLER,
        executor_id: str = "",
    ) -> Any:
        journal = SimpleNamespace(ended=None)
        term = SimpleNamespace(
            driver=SimpleNamespace(state=state), journal=journal, clock=SystemClock()
        )
        leadership = SimpleNamespace(term=lambda: term)
        files = TaskFiles(cast("Any", leadership), SystemClock(), ClientSecurity())
        ids = NAMED.framework_id, NAMED.task_id, NAMED.agent_id
        place = TaskPlace(*ids, "h:1", is_live, (ADS,), "client/f", executor_id)

        async def find(*_: object) -> TaskPlace:
            return place

        parts = {
            "_agents": agents,
            "_find": find,
            "_link": lambda _, path, query: f"{path}?{query}",
        }
        for name, value in parts.items():
            monkeypatch.setattr(files, name, value, raising=False)
        return files.read(part, caller)

    return read


async def found(chunks: Any) -> list[tuple[int, bytes]]:
    async with aclosing(chunks):
        return [(chunk.offset, chunk.data) async for chunk in chunks]


async def test_it_continues_at_its_offset(reading: Any) -> None:
    agents = Agents(
        NotFound("not started yet"),
        (0, b"ab", Interrupted("gone")),
        Unavailable("starting"),
        LinkRefused("expired"),
        (2, b"c"),
    )
    assert await found(reading(agents, FOLLOW)) == [(0, b""), (0, b"ab"), (2, b"c")]
    assert agents.asked == ["follow=1"] * 2 + ["offset=2&follow=1"] * 3


async def test_it_tells_what_is_missing(reading: Any) -> None:
    agents = Agents((50, b"ab", Interrupted("removed")), (90, b"c"))
    part = pb.ReadTaskFileRequest(tail_lines=3, limit=5)
    part.MergeFrom(STDOUT)
    assert await found(reading(agents, part)) == [(50, b""), (50, b"ab"), (90, b"c")]
    assert agents.asked == ["limit=5&tail=3", "offset=52&limit=3"]


async def test_a_task_in_an_executor_has_no_files_even_to_follow(reading: Any) -> None:
    with pytest.raises(InvalidRequest, match="the task e1, which has them"):
        await found(reading(Agents(), FOLLOW, executor_id="e1"))


async def test_it_gives_up(reading: Any) -> None:
    for agents, error, is_live in (
        (Agents(Unavailable("given up")), "given up", True),
        (Agents(NotFound("no stdout")), "no stdout", False),
        (Agents(*[LinkRefused("clocks differ")] * 3), "agent a1: clocks differ", True),
    ):
        with pytest.raises((Unavailable, NotFound), match=error):
            await found(reading(agents, FOLLOW, is_live=is_live))


async def test_a_permission_that_is_withdrawn_ends_a_read(
    reading: Any, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_files, "CHECK_S", 0.01)
    eve = Caller(Principal(PrincipalName("client/eve")))
    rule = Rule("r", "client/eve", (Action.READ_OUTPUT,), f"role:{ADS}")
    state.set_access(AccessPolicy(True, rules={"r": rule}))
    chunks = reading(Agents((0, b"ab"), go_on=True), FOLLOW, caller=eve)
    async with aclosing(chunks), asyncio.timeout(30):
        assert [(await anext(chunks)).data for _ in range(2)] == [b"", b"ab"]
        waiting = asyncio.ensure_future(anext(chunks))
        other = Rule("o", "client/eve", (Action.VIEW,), f"role:{ADS}")
        state.set_access(AccessPolicy(True, rules={"r": rule, "o": other}))
        # A change that leaves the permission does not end the read.
        assert await asyncio.wait({waiting}, timeout=0.1) == (set(), {waiting})
        state.set_access(AccessPolicy(True, rules={"o": other}))
        with pytest.raises(PermissionDenied, match="client/eve may not read-output role:ads"):
            await waiting


async def test_readers_are_bounded(reading: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_files, "READS_PER_CALLER", 0)
    with pytest.raises(Unavailable, match="too many readers"):
        await found(reading(Agents(), FOLLOW))


@pytest.mark.parametrize(
    "address", ["http://h:1/latest?x=", "h/x", "u@h", "ftp://h", "h#", "h?x", "http:/\\h", " h", ""]
)
async def test_an_agent_chooses_no_path_on_another_server(address: str) -> None:
    with pytest.raises(Unavailable, match="no address of an agent"):
        await AgentFiles(ClientSecurity).document(NAMED.agent_id, address, "/files/F1/t1")


def test_malformed_requests_and_answers() -> None:
    for request in (
        pb.ReadTaskFileRequest(),
        pb.ReadTaskFileRequest(path="x", offset=0, tail_lines=1),
        pb.ReadTaskFileRequest(path="x", tail_lines=1, tail_bytes=1),
    ):
        with pytest.raises(InvalidRequest):
            check_part(request)
    assert (
        query_of(pb.ReadTaskFileRequest(path="a b/ä?", offset=3))
        == "offset=3&path=a%20b%2F%C3%A4%3F"
    )
    entry = {"name": "x", "kind": "file", "size": 1, "modified_ms": 2, "mode": 3}
    assert listing_to_wire({"entries": [entry], "is_cut": True}).cut
    for wrong in ({}, {"entries": [{}], "is_cut": False}, {"entries": [{**entry, "size": "x"}]}):
        with pytest.raises(Unavailable, match="another form"):
            listing_to_wire(wrong)
