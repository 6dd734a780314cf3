"""Answers that many equal requests share."""

from __future__ import annotations

import asyncio

import pytest

from croupier.master.web.answers import SharedAnswers
from croupier.model.errors import NotFound
from tests.harness.eventually import eventually


async def test_equal_requests_at_the_same_time_share_one_answer() -> None:
    shared, made = SharedAnswers(), 0
    go = asyncio.Event()

    async def make() -> bytes:
        nonlocal made
        made += 1
        await go.wait()
        return b"{}"

    waiting = [asyncio.create_task(shared.get("a", make, 0.05)) for _ in range(10)]
    other = asyncio.create_task(shared.get("b", make, 0.05))
    await eventually(lambda: made == 2)
    # Who leaves does not end it for the others.
    waiting[0].cancel()
    go.set()
    bodies = await asyncio.gather(*waiting[1:], other)
    assert made == 2
    assert {body.data for body in bodies} == {b"{}"}
    await eventually(lambda: len(shared) == 0)
    await shared.get("a", make, 0.05)
    assert made == 3


async def test_an_error_is_not_kept() -> None:
    shared = SharedAnswers()

    async def fail() -> bytes:
        raise NotFound("gone")

    async def make() -> bytes:
        return b"1" * 2_000

    with pytest.raises(NotFound):
        await shared.get("a", fail, 10)
    body = await shared.get("a", make, 0)
    assert body.compressed is not None
    assert len(body.compressed) < len(body.data)
