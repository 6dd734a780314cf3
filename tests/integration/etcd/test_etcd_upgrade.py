"""Keys of earlier builds in etcd are read completely."""

from __future__ import annotations

import base64
import json

from croupier.etcd.v3 import etcd_pb2 as pb
from croupier.master.core.records import MasterRecord
from croupier.master.etcd.methods import TXN
from croupier.master.etcd.operations import end_of
from tests.integration.etcd.conftest import Masters
from tests.unit.test_upgrade import without_terms
from tests.upgrade.build import OLD
from tests.upgrade.dump import PREFIX, difference, plain


async def test_the_keys_of_an_old_store_are_read_completely_and_extended(
    masters: Masters,
) -> None:
    # Checksums cover the keys, so the prefix must equal that of the file.
    masters.prefix = PREFIX
    start = f"/{PREFIX}/".encode()
    client = masters.client()
    empty = pb.RequestOp(delete_range=pb.DeleteRangeRequest(key=start, range_end=end_of(start)))
    assert (await client.call(TXN, pb.TxnRequest(success=[empty]), 5.0)).succeeded
    puts = [
        pb.RequestOp(put=pb.PutRequest(key=key.encode(), value=base64.b64decode(value)))
        for key, value in json.loads((OLD / "etcd.json").read_text()).items()
    ]
    assert (await client.call(TXN, pb.TxnRequest(success=puts), 5.0)).succeeded
    old = json.loads((OLD / "registry.json").read_text())

    election, store = await masters.leading()
    registry = await store.load()
    assert difference(old, plain(registry)) == []
    assert registry.master is not None
    await store.commit([MasterRecord(registry.master.cluster, registry.master.epoch + 1)])
    await election.resign()

    _, store = await masters.leading("b:1")
    old["master"]["epoch"] += 1
    assert difference(without_terms(old), plain(await store.load())) == []
