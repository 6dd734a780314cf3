from __future__ import annotations

import asyncio

from croupier.agent.executors.streams import MOST_UPDATES, Stream
from croupier.model.ids import FrameworkId, TaskId


async def test_updates_that_wait_for_room_go_on_when_their_stream_ends() -> None:
    stream = Stream(1, (FrameworkId("F1"), TaskId("e1")), 0.0)
    for _ in range(MOST_UPDATES):
        await stream.wait_for_room()
    waiting = [asyncio.create_task(stream.wait_for_room()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(each.done() for each in waiting)
    stream.close("")
    async with asyncio.timeout(10):
        await asyncio.gather(*waiting)
