from __future__ import annotations

import asyncio
from pathlib import Path

from croupier.agent.executors.streams import MOST_UPDATES, Stream, Streams
from croupier.model.ids import FrameworkId, TaskId
from croupier.process.clock import SystemClock
from croupier.process.inbox import Inbox
from tests.harness.agent_core import World


async def test_updates_that_wait_for_room_go_on_when_their_stream_ends() -> None:
    stream = Stream(1, (FrameworkId("F1"), TaskId("e1")), 0.0)
    for _ in range(MOST_UPDATES):
        await stream.wait_for_room()
    waiting = [asyncio.create_task(stream.wait_for_room()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(each.done() for each in waiting)
    stream.close("")
    async with asyncio.timeout(30):
        await asyncio.gather(*waiting)


def test_the_key_of_the_tokens_is_not_in_the_directory_that_executors_see(tmp_path: Path) -> None:
    def streams() -> Streams:
        made = Streams(World().state, Inbox(), tmp_path, SystemClock(), lambda _: None)
        made.prepare()
        return made

    first = streams()
    assert list(first.directory.iterdir()) == []
    assert first.key_file.stat().st_mode & 0o777 == 0o600
    assert streams().token_of("run") == first.token_of("run")  # the next agent knows it
