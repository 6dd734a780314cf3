"""Stores in files: opened, written and read in one step each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from croupier.master.core.records import Record
from croupier.master.core.registry import Registry
from croupier.master.store import SqliteStore
from croupier.model.errors import InvalidRequest, Unavailable


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteStore]:
    """Open the store as a master does, and close it."""
    store = SqliteStore(path)
    try:
        await store.load()
        yield store
    finally:
        await store.close()


async def read(path: Path) -> Registry:
    store = SqliteStore(path)
    try:
        return await store.load()
    finally:
        await store.close()


async def commit(path: Path, *commits: Sequence[Record]) -> None:
    """Open the store, make these commits, and close it; without commits, only create it."""
    async with opened(path) as store:
        for records in commits:
            await store.commit(records)


async def refusal(path: Path) -> str:
    """Return the one line with which the store is refused."""
    with pytest.raises((InvalidRequest, Unavailable)) as refused:
        await read(path)
    said = str(refused.value)
    assert len(said.splitlines()) == 1
    return said
