"""Readers of files leave turns of the loop to everything else."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from croupier.agent import served_files
from croupier.agent.output_links import OutputLinks
from croupier.agent.served_files import PartRequest, ServedFiles
from croupier.model.ids import FrameworkId, TaskId
from croupier.process.clock import SystemClock

CHUNKS = 20


class Connection:
    """A request and its answer, whose reader is always as fast as the disk."""

    transport = property(lambda self: self)
    remote = "127.0.0.1"

    def __init__(self) -> None:
        self.got = 0

    def is_closing(self) -> bool:
        return False

    async def write(self, data: bytes) -> None:
        self.got += len(data)

    async def write_eof(self) -> None:
        pass


async def test_a_fast_reader_does_not_hold_the_loop(tmp_path: Path) -> None:
    size = CHUNKS * served_files.CHUNK_BYTES
    (tmp_path / "file").touch()
    os.truncate(tmp_path / "file", size)
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    reader: Any = Connection()
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    try:
        served = ServedFiles(lambda _: False, OutputLinks(SystemClock()))
        key = FrameworkId("F1"), TaskId("t1")
        assert await served._copy(reader, reader, key, fd, 0, PartRequest(), lambda _: 0)
    finally:
        other.cancel()
        os.close(fd)
    assert reader.got == size
    assert turns >= CHUNKS
