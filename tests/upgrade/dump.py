"""Print the content of a store or a checkpoint as JSON; runs on either build.

    python -m tests.upgrade.dump sqlite FILE | etcd HOST:PORT FILE | checkpoint DIRECTORY

`etcd` copies the records of the SQLite file into the etcd first, and prints its keys.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import structlog

PREFIX = "croupier"


def plain(value: object) -> Any:
    """Return a record as JSON: dataclasses as objects with the names of their fields."""
    if dataclasses.is_dataclass(value):
        names = [each.name for each in dataclasses.fields(value) if each.compare]
        return {each: plain(getattr(value, each)) for each in names}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, frozenset):
        return sorted(map(plain, value))
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def difference(old: Any, new: Any, where: str = "") -> list[str]:
    """List what `old` has and `new` lacks; fields only in `new` do not count."""
    if isinstance(old, dict) and isinstance(new, dict):
        missing = [f"{where}.{key} is missing" for key in old if key not in new]
        common = (key for key in old if key in new)
        return [
            *missing,
            *(d for key in common for d in difference(old[key], new[key], f"{where}.{key}")),
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [d for n, (a, b) in pairs for d in difference(a, b, f"{where}[{n}]")]
    return [] if old == new else [f"{where}: {old!r} became {new!r}"]


async def registry_of(path: Path) -> Any:
    """Return the registry in a SQLite file, without changing the file."""
    from croupier.master.store.sqlite import SqliteStore

    with tempfile.TemporaryDirectory() as scratch:
        copy = shutil.copy2(path, scratch)
        store = SqliteStore(Path(copy))
        try:
            return await store.load()
        finally:
            await store.close()


class Address(NamedTuple):
    """A member of etcd; builds have this class in different modules."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def checkpoint_of(directory: Path) -> list[dict[str, Any]]:
    """Return the records of a checkpoint, without changing the file."""
    from croupier.agent.checkpoint import NAME, Checkpoint

    async def load() -> list[dict[str, Any]]:
        with tempfile.TemporaryDirectory() as scratch:
            shutil.copy2(directory / NAME, scratch)
            checkpoint, loaded = Checkpoint.open(Path(scratch))
            await checkpoint.close()
            assert loaded.damaged == []
            return [{"kind": type(each).__name__, **plain(each)} for each in loaded.records]

    return asyncio.run(load())


async def etcd_keys(address: str, path: Path) -> dict[str, str]:
    """Commit the records of a SQLite file to etcd; return keys, and values in base64."""
    from croupier.etcd.v3 import etcd_pb2 as pb
    from croupier.master.etcd.client import EtcdClient
    from croupier.master.etcd.election import EtcdElection
    from croupier.master.etcd.operations import RANGE
    from croupier.master.etcd.target import EtcdAccess
    from croupier.master.store.etcd import EtcdStore

    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    registry = await registry_of(path)
    host, _, port = address.rpartition(":")
    client = EtcdClient([Address(host, int(port))], EtcdAccess(), random.Random(1))  # type: ignore[list-item]
    election = EtcdElection(client, PREFIX, "a:1", 5.0)
    try:
        await election.win()
        store = EtcdStore(client, PREFIX, election)
        await store.load()
        await store.commit(registry.records())
        start = f"/{PREFIX}/".encode()
        answer = await client.call(
            RANGE, pb.RangeRequest(key=start, range_end=start[:-1] + b"0"), 5.0
        )
        leader = f"/{PREFIX}/leader".encode()
        return {
            kv.key.decode(): base64.b64encode(kv.value).decode()
            for kv in answer.kvs
            if kv.key != leader
        }
    finally:
        await election.resign()
        await client.close()


def main(argv: list[str]) -> int:
    match argv:
        case ["sqlite", path]:
            content = plain(asyncio.run(registry_of(Path(path))))
        case ["etcd", address, path]:
            content = asyncio.run(etcd_keys(address, Path(path)))
        case ["checkpoint", directory]:
            content = checkpoint_of(Path(directory))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    json.dump(content, sys.stdout, indent=1, sort_keys=True)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
