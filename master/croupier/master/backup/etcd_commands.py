"""Copies of a store in etcd: the part of the commands that talks to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from croupier.master.backup.copy_file import CopyHead, head_of, write_copy
from croupier.master.backup.etcd_source import etcd_snapshot
from croupier.master.backup.etcd_target import EtcdRestore
from croupier.master.backup.flags import StoreFlags
from croupier.master.backup.restored import Restored, Witness
from croupier.master.etcd.client import EtcdClient
from croupier.net.version import croupier_version


@asynccontextmanager
async def _connected(flags: StoreFlags) -> AsyncIterator[tuple[EtcdClient, str]]:
    """Yield a client and the prefix of the store."""
    assert flags.store.etcd is not None
    client = EtcdClient(flags.store.etcd.endpoints, flags.etcd.read())
    try:
        await client.check()
        yield client, flags.store.etcd.prefix
    finally:
        await client.close()


async def back_up_etcd(flags: StoreFlags, output: Path, taken_at: str) -> tuple[CopyHead, int]:
    """Copy the store to the file `output`; return its head and the number of records.

    Raises:
        CroupierError: if it cannot be read or written.
    """
    async with _connected(flags) as (client, prefix):
        snapshot = await etcd_snapshot(client, prefix)
    head = head_of(
        snapshot.master,
        snapshot.commits,
        taken_at=taken_at,
        version=snapshot.version,
        release=croupier_version(),
        kind="etcd",
    )
    return head, write_copy(output, head, snapshot.rows)


async def restore_etcd(
    flags: StoreFlags,
    decide: Callable[[list[Witness]], Restored],
    *,
    replaces: bool,
    dry_run: bool,
) -> None:
    """Write what `decide` returns, given what is known of the store that is there.

    Raises:
        CroupierError: if a master leads, there is another store, or etcd does not answer.
    """
    async with _connected(flags) as (client, prefix):
        target = EtcdRestore(client, prefix)
        try:
            await target.lead()
            content = decide(await target.witnesses())
            await target.check_free(replaces=replaces)
            if not dry_run:
                await target.write(content)
        finally:
            await target.close()
