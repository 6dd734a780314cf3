"""`croupier exec` is refused while it writes its first message."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest

from croupier.cli.connection import Master
from croupier.cli.printer import Printer
from croupier.ctl.commands import exec as command
from croupier.ctl.task_output import TaskName
from croupier.model.errors import CroupierError, PermissionDenied, Unavailable
from croupier.net.address import Address
from croupier.v1 import exec_pb2

NOTHING = grpc.aio.Metadata()
LOST = grpc.aio.AioRpcError(
    grpc.StatusCode.INTERNAL, NOTHING, NOTHING, "Internal error from Core", "Failed grpc_call"
)
REFUSED = grpc.aio.AioRpcError(
    grpc.StatusCode.PERMISSION_DENIED, NOTHING, NOTHING, "ann may not run commands"
)


class Call:
    """A call to which nothing can be written, and that ends with an error, or does not end."""

    def __init__(self, error: grpc.aio.AioRpcError | None) -> None:
        self._error = error
        self.is_cancelled, self.has_written = False, False

    async def write(self, _: object) -> None:
        self.has_written = True
        raise LOST

    async def __aiter__(self) -> AsyncIterator[object]:
        if self._error is None:
            await asyncio.Event().wait()
        else:
            raise self._error
        yield None

    def cancel(self) -> None:
        self.is_cancelled = True


async def refused(*calls: Call) -> CroupierError:
    """Run a command with these calls; return the error."""
    address, coming = Address("host", 1), iter(calls)
    async with grpc.aio.insecure_channel(str(address)) as channel:
        master: Any = Master(address, channel)
        master.service = SimpleNamespace(ExecTask=lambda: next(coming))
        started = exec_pb2.ExecCommand(argv=["true"])
        run: Any = command._Exec(None, TaskName("t1", "f1"), started, None)  # type: ignore[arg-type]
        with pytest.raises(CroupierError) as caught:
            await run._converse(master, Printer(io.BytesIO(), io.BytesIO(), prefixed=False))
    return caught.value


async def test_the_reason_of_a_refusal_that_was_lost_is_asked_for_once_more() -> None:
    first, second = Call(LOST), Call(REFUSED)
    error = await refused(first, second)
    assert isinstance(error, PermissionDenied)
    assert str(error) == "ann may not run commands"
    assert not second.has_written, "the command is never started twice"
    assert second.is_cancelled


async def test_a_connection_that_broke_is_told_in_plain_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "REFUSAL_S", 0.01)
    error = await refused(Call(LOST), Call(None))
    assert isinstance(error, Unavailable)
    assert str(error) == "the connection to the master at host:1 broke; try again"
