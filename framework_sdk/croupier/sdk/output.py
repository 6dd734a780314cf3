"""Reading what a task has written, through the master that the session is with."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import grpc.aio

from croupier.model.errors import InvalidRequest, Unavailable
from croupier.model.ids import check_id
from croupier.net.address import Address
from croupier.net.backoff import Backoff
from croupier.net.unary import answers_of

if TYPE_CHECKING:
    from croupier.v1 import operator_pb2

# The most bytes of an output that are read, from its end.
MOST_BYTES: Final = 16 * 2**20
TIMEOUT_S: Final = 30.0
# The channel to the master of a session, the master's address, and the framework's id.
Reader = tuple[grpc.aio.Channel, Address, str]


async def read_output(
    reader: Callable[[], Reader | None], task_id: str, *, stderr: bool, tail: int | None
) -> bytes:
    """Read the output of a task; see `Framework.read_output`."""
    from croupier.v1.operator_pb2 import ReadTaskFileRequest  # only for those that read

    check_id("task", task_id)
    if tail is not None and tail < 1:
        raise InvalidRequest("tail is a number of lines, at least 1")
    request = ReadTaskFileRequest(task_id=task_id, path="stderr" if stderr else "stdout")
    if tail is None:
        request.tail_bytes = MOST_BYTES
    else:
        request.tail_lines = tail
    backoff = Backoff(0.1, 2.0, random.Random())
    error = Unavailable("no master has accepted the framework")
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                found = reader()
                if found is not None:
                    try:
                        return await _read(request, found)
                    except Unavailable as failed:
                        error = failed
                await asyncio.sleep(backoff.next_s())
    except TimeoutError:
        raise error from None


async def _read(request: operator_pb2.ReadTaskFileRequest, reader: Reader) -> bytes:
    from croupier.v1.operator_pb2_grpc import OperatorServiceStub

    found = bytearray()
    channel, address, request.framework_id = reader
    call = OperatorServiceStub(channel).ReadTaskFile(request, timeout=TIMEOUT_S)
    async with aclosing(answers_of(call, address)) as answers:
        async for answer in answers:
            found += answer.data
            # The task may write meanwhile.
            del found[:-MOST_BYTES]
    return bytes(found)
