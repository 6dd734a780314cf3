"""Blocking writes: in order, without a wake-up while they are short, and never for long."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from croupier.process.writer_thread import BLOCK_S, SHORT_S, WriterThread
from tests.harness.eventually import eventually


def fast() -> WriterThread:
    writer = WriterThread("test")
    writer.usual_s = 0.0
    return writer


async def test_the_loop_waits_for_a_short_write_of_a_fast_disk() -> None:
    writer = fast()
    turns: list[int] = []
    for _ in range(20):
        asyncio.get_running_loop().call_soon(turns.append, 1)
        if await writer.run(lambda: 7, is_short=True) == 7 and not turns:
            break
        turns.clear()
    else:
        raise AssertionError("others got a turn each time")
    writer.shutdown()


async def test_a_write_that_hangs_blocks_the_loop_for_a_moment_only() -> None:
    writer, begun, answers = fast(), threading.Event(), threading.Event()

    def hang() -> bool:
        begun.set()
        return answers.wait(60)

    writing = asyncio.create_task(writer.run(hang, is_short=True))
    began = time.monotonic()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert time.monotonic() - began < 5
    assert not writing.done()
    later = asyncio.create_task(writer.run(lambda: "after", is_short=True))
    # On a busy machine the thread may begin late.
    await eventually(begun.is_set)
    await asyncio.sleep(2 * BLOCK_S)
    answers.set()
    assert await writing
    assert await later == "after"
    assert writer.usual_s > SHORT_S, "the disk is slow now"
    writer.shutdown()


async def test_a_slow_disk_becomes_fast_again() -> None:
    writer = WriterThread("test")
    writer.usual_s = 1.0

    async def is_fast() -> bool:
        await writer.run(lambda: None, is_short=True)
        return writer.usual_s < SHORT_S

    await eventually(is_fast)
    writer.shutdown()


@pytest.mark.parametrize("usual_s", [0.0, 1.0])
@pytest.mark.parametrize("error", [TimeoutError("the disk timed out"), ValueError("no")])
async def test_errors_reach_the_caller(usual_s: float, error: Exception) -> None:
    writer = WriterThread("test")
    writer.usual_s = usual_s

    def fail() -> None:
        raise error

    with pytest.raises(type(error), match=str(error)):
        await writer.run(fail, is_short=True)
    writer.shutdown()
