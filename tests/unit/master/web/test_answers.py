"""Bodies of answers."""

from __future__ import annotations

from croupier.master.web.answers import COMPRESSED_FROM, Body


async def test_large_bodies_are_compressed() -> None:
    small, large = await Body.of(b"1" * (COMPRESSED_FROM - 1)), await Body.of(b"1" * 2_000)
    assert small.compressed is None
    assert large.compressed is not None
    assert len(large.compressed) < len(large.data)
    assert small.tag != large.tag
