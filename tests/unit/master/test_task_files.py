"""A reader of a task's output gets each byte once, whatever its agent does meanwhile."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast

import pytest

from croupier.master.caller import UNKNOWN_CALLER
from croupier.master.services import task_files
from croupier.master.services.task_files import (
    Chunk,
    TaskFiles,
    WantedPart,
    check_part,
    listing_to_wire,
)
from croupier.master.services.task_places import NamedTask, TaskPlace
from croupier.model.errors import InvalidRequest, NotFound, Unavailable
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.net.credentials import ClientSecurity
from croupier.process.clock import SystemClock
from croupier.process.http.agent_files import AgentFiles, Interrupted, LinkRefused, Part

NAMED = NamedTask(TaskId("t1"), FrameworkId("F1"), AgentId("a1"))
FOLLOW = WantedPart("stdout", follow=True)


class Agents:
    """Agents that answer by a script: an error, or an offset with chunks and perhaps an error."""

    def __init__(self, *answers: Any) -> None:
        self._answers, self.asked = list(answers), list[str]()

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

        yield Part(offset, 100, send())


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that reads from scripted agents, without pauses."""

    async def no_pause(_: object, error: Unavailable) -> None:
        if str(error) == "given up":
            raise error

    monkeypatch.setattr(task_files._Patience, "wait", no_pause)
    monkeypatch.setattr(task_files, "POLL_S", 0.0)

    def read(agents: Agents, part: WantedPart, *, is_live: bool = True) -> Any:
        files = TaskFiles(cast("Any", None), SystemClock(), ClientSecurity())
        place = TaskPlace(NAMED.framework_id, NAMED.task_id, NAMED.agent_id, "h:1", is_live)

        async def find(*_: object) -> TaskPlace:
            return place

        for name, value in (
            ("_agents", agents), ("_find", find), ("_check", lambda _: None),
            ("_link", lambda _, path: path),
        ):  # fmt: skip
            monkeypatch.setattr(files, name, value, raising=False)
        return files.read(NAMED, part, UNKNOWN_CALLER)

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
    part = WantedPart("stdout", tail_lines=3, limit=5)
    assert await found(reading(agents, part)) == [(50, b""), (50, b"ab"), (90, b"c")]
    assert agents.asked == ["limit=5&tail=3", "offset=52&limit=3"]


async def test_it_gives_up(reading: Any) -> None:
    for agents, error, is_live in (
        (Agents(Unavailable("given up")), "given up", True),
        (Agents(NotFound("no stdout")), "no stdout", False),
        (Agents(*[LinkRefused("clocks differ")] * 3), "agent a1: clocks differ", True),
    ):
        with pytest.raises((Unavailable, NotFound), match=error):
            await found(reading(agents, FOLLOW, is_live=is_live))


async def test_readers_are_bounded(reading: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_files, "READS_PER_CALLER", 0)
    with pytest.raises(Unavailable, match="too many readers"):
        await found(reading(Agents(), FOLLOW))


@pytest.mark.parametrize(
    "address", ["http://h:1/latest?x=", "h/x", "u@h", "ftp://h", "h#", "h?x", "http:/\\h", " h", ""]
)
async def test_an_agent_chooses_no_path_on_another_server(address: str) -> None:
    with pytest.raises(Unavailable, match="no address of an agent"):
        await AgentFiles(ClientSecurity()).document(NAMED.agent_id, address, "/files/F1/t1")


def test_malformed_requests_and_answers() -> None:
    for part in (WantedPart(""), WantedPart("x", 0, tail_lines=1), WantedPart("x", None, 1, 1, 1)):
        with pytest.raises(InvalidRequest):
            check_part(part)
    assert WantedPart("a b/ä?", 3).query() == "offset=3&path=a%20b%2F%C3%A4%3F"
    assert Chunk(1, b"", 2).size == 2
    entry = {"name": "x", "kind": "file", "size": 1, "modified_ms": 2, "mode": 3}
    assert listing_to_wire({"entries": [entry], "is_cut": True}).cut
    for wrong in ({}, {"entries": [{}], "is_cut": False}, {"entries": [{**entry, "size": "x"}]}):
        with pytest.raises(Unavailable, match="another form"):
            listing_to_wire(wrong)
