"""`croupier-master backup` and `croupier-master restore`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from croupier.master.backup import sqlite
from croupier.master.backup.copy_file import Witness, read_copy, write_copy
from croupier.master.backup.flags import StoreFlags
from croupier.master.backup.restored import Restored, restored
from croupier.master.leadership.lineage import Names


def back_up(flags: StoreFlags, output: Path) -> str:
    """Copy the store to a new file `output`, and return a line about it; raises CroupierError."""
    output = output.expanduser()
    if flags.store.etcd is not None:
        from croupier.master.backup.etcd import back_up_etcd

        head, count = write_copy(output, asyncio.run(back_up_etcd(flags)), "etcd")
    else:
        path = flags.store.path
        assert path is not None, "checked by the flags"
        with sqlite.sqlite_snapshot(path) as snapshot:
            head, count = write_copy(output, snapshot, "sqlite")
    return f"copied {count} records to {output}: {head}"


def restore(
    flags: StoreFlags, source: Path, *, accepts_old: bool, replaces: bool, dry_run: bool
) -> list[str]:
    """Make the copy `source` the store; return lines on what was done. Raises CroupierError."""
    copy = read_copy(source.expanduser())

    def decide(witnesses: list[Witness]) -> Restored:
        return restored(copy, witnesses, Names.new(), accepts_old=accepts_old)

    if flags.store.etcd is not None:
        from croupier.master.backup.etcd import restore_etcd

        asyncio.run(restore_etcd(flags, decide, replaces=replaces, dry_run=dry_run))
    else:
        path = flags.store.path
        assert path is not None, "checked by the flags"
        with sqlite.locked(path):
            content = decide(sqlite.sqlite_witnesses(path))
            sqlite.check_free(path, replaces=replaces)
            if not dry_run:
                sqlite.write_sqlite(path, content, copy.head.cluster)
    done = "would restore" if dry_run else "restored"
    lines = [f"{done} {len(copy.records)} records to {flags.store}: {copy.head}"]
    if not dry_run:
        lines.append(_next_step(accepts_old))
    return lines


def _next_step(accepts_old: bool) -> str:
    if accepts_old:
        return (
            "start the masters; tasks that were queued in the copy end as LOST, and agents"
            " report the tasks that they run. If a master still says that the store is an old copy,"
            " start it once with --recover old-store"
        )
    return (
        "start the masters; if they say that the store is an old copy, restore again with"
        " --recover old-store"
    )
