"""The keys that an earlier build left in etcd are read whole."""

from __future__ import annotations

import base64
import json

from croupier.etcd.v3 import etcd_pb2 as pb
from croupier.master.core.records import MasterRecord
from croupier.master.etcd.methods import TXN
from tests.integration.etcd.conftest import Masters
from tests.upgrade.build import OLD
from tests.upgrade.dump import PREFIX, difference, plain


async def test_the_keys_of_an_old_store_are_read_whole_and_written_on(masters: Masters) -> None:
    keys = json.loads((OLD / "etcd.json").read_text())
    puts = [
        pb.RequestOp(
            put=pb.PutRequest(
                key=key.replace(f"/{PREFIX}/", f"/{masters.prefix}/", 1).encode(),
                value=base64.b64decode(value),
            )
        )
        for key, value in keys.items()
    ]
    assert (await masters.client().call(TXN, pb.TxnRequest(success=puts), 5.0)).succeeded
    old = json.loads((OLD / "registry.json").read_text())

    election, store = await masters.leading()
    registry = await store.load()
    assert difference(old, plain(registry)) == []
    assert registry.master is not None
    await store.commit([MasterRecord(registry.master.cluster, registry.master.epoch + 1)])
    await election.resign()

    _, store = await masters.leading("b:1")
    old["master"]["epoch"] += 1
    assert difference(old, plain(await store.load())) == []
