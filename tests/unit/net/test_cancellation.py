"""A cancelled task ends, however its gRPC call ends."""

from __future__ import annotations

import asyncio
from typing import NoReturn

import grpc
import grpc.aio
import pytest

from croupier.etcd.v3 import etcd_pb2 as pb
from croupier.master.etcd.client import EtcdClient
from croupier.master.etcd.methods import RANGE
from croupier.model.errors import CroupierError
from croupier.net.address import Address
from croupier.net.task_scope import reraise_own_cancellation


async def ends_by_status(*_: object, **__: object) -> NoReturn:
    """End with a gRPC status when the task is cancelled."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        nothing = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(grpc.StatusCode.CANCELLED, nothing, nothing) from None
    raise AssertionError


async def cancelled(task: asyncio.Task[None]) -> None:
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 5.0)


async def test_a_cancelled_task_that_calls_etcd_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    client = EtcdClient([Address("127.0.0.1", 1)])
    (endpoint,) = client._endpoints
    monkeypatch.setattr(endpoint._channel, "unary_unary", lambda *_, **__: ends_by_status)

    async def insist() -> None:
        while True:
            try:
                await client.attempt(RANGE, pb.RangeRequest(key=b"k"), 5.0)
            except CroupierError:
                continue

    await cancelled(asyncio.create_task(insist()))
    await client.close()


async def test_a_task_that_was_not_cancelled_continues() -> None:
    reraise_own_cancellation()
