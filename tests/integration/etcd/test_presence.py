"""The keys of running masters in etcd."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from croupier.etcd.v3 import etcd_pb2 as pb
from croupier.master.etcd import operations as op
from croupier.master.etcd import presence as presence_module
from croupier.master.etcd.client import EtcdClient
from croupier.master.etcd.keys import Keys
from croupier.master.etcd.methods import REVOKE, TXN
from croupier.master.etcd.presence import MOST_MASTERS, EtcdPresence
from croupier.master.leadership.roster import Candidate
from croupier.model.errors import InvalidRequest
from tests.harness.etcd import PASSWORD, USER, running_etcd
from tests.harness.eventually import eventually
from tests.integration.etcd.conftest import Masters

M1 = Candidate("m1:5050", "http://m1:5080", "0.9.0", 1_000)
M2 = Candidate("m2:5050", "http://m2:5080", "0.9.0", 2_000)


async def test_masters_know_each_other_until_they_end(masters: Masters) -> None:
    client = masters.client()
    first, second = (EtcdPresence(client, masters.prefix, 2.0) for _ in range(2))
    await first.round(M1)
    await second.round(M2)
    await first.round(M1)
    assert (list(first.others), list(second.others)) == ([M2], [M1])
    # What has changed is told with the next round.
    led = replace(M2, master_id="c-3", epoch=3, term_since_ms=3_000)
    await second.round(led)
    await first.round(M1)
    assert list(first.others) == [led]
    # A lease that was lost is replaced.
    await client.call(REVOKE, pb.LeaseRevokeRequest(id=second._lease))
    await second.round(led)
    await first.round(M1)
    assert list(first.others) == [led]
    await second.close()
    await first.round(M1)
    assert list(first.others) == []
    await first.close()
    held, _ = await client.get(Keys(masters.prefix).master("m1:5050"))
    assert held is None


async def test_foreign_values_are_ignored_and_their_number_is_bounded(masters: Masters) -> None:
    client, keys = masters.client(), Keys(masters.prefix)
    bad = [op.put(keys.master("bad:1"), b"\xff" * 100_000), op.put(keys.masters, M2.encode())]
    many = [op.put(keys.master(f"m{number}:1"), b"{}") for number in range(100)]
    await client.call(TXN, pb.TxnRequest(success=[*bad, *many]))
    presence = EtcdPresence(client, masters.prefix, 2.0)
    await presence.round(M1)
    assert len(presence.others) == MOST_MASTERS - 2
    await presence.close()


async def test_a_user_of_narrow_rights_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_etcd(tmp_path) as etcd:
        etcd.enable_users("croupier")
        client = EtcdClient(etcd.addresses, etcd.access(USER, PASSWORD))
        allowed = EtcdPresence(client, "croupier", 2.0)
        await allowed.round(M1)
        refused = EtcdPresence(client, "elsewhere", 2.0)
        with pytest.raises(InvalidRequest):
            await refused.round(M2)
        monkeypatch.setattr(presence_module, "REFUSED_S", 0.01)
        rounds = 0

        def own() -> Candidate:
            nonlocal rounds
            rounds += 1
            return M2

        with capture_logs() as logs:
            refused.start(own)
            await eventually(lambda: rounds > 3)
        assert [line["event"] for line in logs] == ["masters_unknown"]
        await asyncio.gather(refused.close(), allowed.close())
        await client.close()
