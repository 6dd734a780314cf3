"""The store in etcd: commits of the leader are kept, and those of a deposed leader refused."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Callable

import pytest

from croupier.etcd.v3 import etcd_pb2 as pb
from croupier.master.core.access_records import TokenId, TokenKind, TokenRecord
from croupier.master.core.records import (
    AgentRecord,
    ForgetAgent,
    FrameworkRecord,
    MasterRecord,
    Record,
)
from croupier.master.etcd.client import CALL_S, EtcdClient
from croupier.master.etcd.operations import RANGE, TXN, A, Method, Q
from croupier.master.store.etcd import EtcdStore, find_token
from croupier.master.store.etcd_rows import MAX_RECORDS
from croupier.model.errors import Conflict, CroupierError, FailedOver, InvalidRequest, Unavailable
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.principal import PrincipalName
from tests.integration.etcd.conftest import Masters


def agents(number: int, hostname: str = "h") -> list[Record]:
    return [AgentRecord(AgentId(f"A{each}"), hostname) for each in range(number)]


class Stubborn:
    """A fence that always reports leadership."""

    is_won = True

    def __init__(self, token: int) -> None:
        self.token = token
        self.is_fenced = False

    def fenced(self) -> None:
        self.is_fenced = True


class Recording(EtcdClient):
    """A client that records its transactions."""

    asked: list[pb.TxnRequest]

    async def attempt(self, method: Method[Q, A], question: Q, timeout_s: float) -> A:
        if isinstance(question, pb.TxnRequest):
            self.__dict__.setdefault("asked", []).append(question)
        return await super().attempt(method, question, timeout_s)


class Deaf(EtcdClient):
    """A client that loses the first answers."""

    deaf_to = 0

    async def attempt(self, method: Method[Q, A], question: Q, timeout_s: float) -> A:
        answer = await super().attempt(method, question, timeout_s)
        if method.path == TXN.path and self.deaf_to:
            self.deaf_to -= 1
            raise Unavailable("the answer went astray")
        return answer


class Mortal(EtcdClient):
    """A client that fails after a number of transactions."""

    lives: int | None = None

    async def call(
        self,
        method: Method[Q, A],
        question: Q,
        timeout_s: float = CALL_S,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> A:
        if method.path == TXN.path and self.lives is not None:
            if not self.lives:
                raise Unavailable("the master has died")
            self.lives -= 1
        return await super().call(method, question, timeout_s, is_wanted)


async def put(masters: Masters, key: str, value: bytes) -> None:
    operation = pb.RequestOp(
        put=pb.PutRequest(key=f"/{masters.prefix}/{key}".encode(), value=value)
    )
    await masters.client().call(TXN, pb.TxnRequest(success=[operation]))


async def test_the_next_leader_loads_committed_records(masters: Masters) -> None:
    election, store = await masters.leading("a:1")
    framework = FrameworkRecord(FrameworkId("F"), "näme", (Role("ads"),), 60.0)
    await store.commit([MasterRecord("c", 1), *agents(3), framework])
    await store.commit([ForgetAgent(AgentId("A1")), AgentRecord(AgentId("A2"), "other")])
    await store.commit([])
    await election.resign()
    _, second = await masters.leading("b:1")
    registry = await second.load()
    assert registry.master == MasterRecord("c", 1)
    assert registry.agents == {
        AgentId("A0"): AgentRecord(AgentId("A0"), "h"),
        AgentId("A2"): AgentRecord(AgentId("A2"), "other"),
    }
    assert registry.frameworks == {framework.framework_id: framework}


async def test_the_last_record_of_an_id_in_a_commit_wins(masters: Masters) -> None:
    _, store = await masters.leading()
    agent, other = AgentRecord(AgentId("A"), "h"), AgentRecord(AgentId("B"), "h")
    again = AgentRecord(AgentId("B"), "again")
    await store.commit([agent, ForgetAgent(AgentId("A")), ForgetAgent(AgentId("B")), other, again])
    assert (await store.load()).agents == {AgentId("B"): again}


async def test_a_deposed_leader_writes_nothing(masters: Masters) -> None:
    election, store = await masters.leading("a:1")
    fence = Stubborn(election.token)
    old = EtcdStore(masters.client(), masters.prefix, fence)
    await old.load()
    await election.resign()
    with pytest.raises(FailedOver):
        await old.commit(agents(1))
    assert fence.is_fenced
    _, new = await masters.leading("b:1")
    await new.commit(agents(2, "new"))
    with pytest.raises(FailedOver):
        await old.commit(agents(1))
    with pytest.raises(FailedOver):
        await old.load()
    assert len((await new.load()).agents) == 2
    with pytest.raises(Unavailable):
        await store.commit(agents(1))


async def test_a_delayed_transaction_has_no_effect(masters: Masters) -> None:
    """A member may delay a transaction until long after it was retried."""
    client = masters.client(kind=Recording)
    assert isinstance(client, Recording)
    _, store = await masters.leading(client=client)
    await store.commit(agents(1, "old"))
    late = client.asked[-1]
    await store.commit(agents(1, "new"))
    answer = await masters.client().call(TXN, late)
    assert not answer.succeeded
    await store.commit(agents(1, "newest"))
    assert (await store.load()).agents[AgentId("A0")].hostname == "newest"


async def test_a_retried_transaction_is_not_carried_out_twice(masters: Masters) -> None:
    client = masters.client(kind=Deaf)
    assert isinstance(client, Deaf)
    _, store = await masters.leading(client=client)
    client.deaf_to = 2
    await store.commit(agents(1, "once"))
    await store.commit(agents(2, "twice"))
    client.deaf_to = 1
    await store.commit(agents(300, "thrice"))
    assert {agent.hostname for agent in (await store.load()).agents.values()} == {"thrice"}


@pytest.mark.parametrize("lives", range(6))
async def test_a_large_commit_is_atomic_wherever_its_master_dies(
    masters: Masters, lives: int
) -> None:
    client = masters.client(kind=Mortal)
    assert isinstance(client, Mortal)
    election, store = await masters.leading("a:1", client=client)
    await store.commit([*agents(400, "old"), MasterRecord("c", 1)])
    client.lives = lives
    changed = [*agents(400, "new"), ForgetAgent(AgentId("A7")), MasterRecord("c", 2)]
    made = False
    try:
        await store.commit(changed)
        made = True
    except Unavailable:
        assert lives < 5
    client.lives = None
    await election.resign()
    _, second = await masters.leading("b:1")
    registry = await second.load()
    hostnames = {agent.hostname for agent in registry.agents.values()}
    assert (hostnames, registry.master) == (
        ({"new"}, MasterRecord("c", 2)) if lives else ({"old"}, MasterRecord("c", 1))
    )
    assert len(registry.agents) == (399 if lives else 400)
    assert made == (lives >= 5)


async def test_writes_of_another_program_are_detected(masters: Masters) -> None:
    _, store = await masters.leading()
    await put(masters, "head", b'{"mark":"mine","parts":0}')
    with pytest.raises(Unavailable, match="another program"):
        await store.commit(agents(1))


async def test_five_thousand_records_are_loaded(masters: Masters) -> None:
    _, store = await masters.leading()
    await store.commit(agents(5000))
    assert len((await store.load()).agents) == 5000


async def test_the_largest_records_are_loaded(masters: Masters) -> None:
    """A page of the largest records must not exceed the limit of an answer."""
    _, store = await masters.leading()
    noise = base64.b64encode(random.Random(1).randbytes(960_000)).decode()
    # The largest records come last, when pages have grown.
    await store.commit(agents(200))
    for number in range(70):
        await store.commit([AgentRecord(AgentId(f"B{number}"), noise)])
    loaded = (await store.load()).agents.values()
    assert len(loaded) == 270
    assert sum(agent.hostname == noise for agent in loaded) == 70


async def test_a_refusal_counts_as_an_answer(masters: Masters) -> None:
    client = masters.client()
    await client.get(b"any")
    before = client.answers, client.failures
    with pytest.raises(Conflict, match="future revision"):
        await client.call(RANGE, pb.RangeRequest(key=b"any", revision=1 << 40))
    assert (client.answers, client.failures) == (before[0] + 1, before[1])


async def test_a_full_transaction_is_one_commit(masters: Masters) -> None:
    client = masters.client(kind=Recording)
    assert isinstance(client, Recording)
    _, store = await masters.leading(client=client)
    before = len(client.asked)
    await store.commit(agents(MAX_RECORDS))
    assert len(client.asked) == before + 1
    await store.commit(agents(MAX_RECORDS + 1))
    assert len(client.asked) == before + 1 + 3


async def test_a_record_that_is_too_large_is_refused_by_name(masters: Masters) -> None:
    # Making and compressing the records blocks the loop, which renews the lease.
    _, store = await masters.leading(lease_s=60.0)
    long = AgentRecord(AgentId("long"), "".join(map(chr, range(1, 32))) * 16_000)
    await store.commit([long])
    assert (await store.load()).agents[AgentId("long")] == long
    noise = random.Random(1)
    huge = AgentRecord(
        AgentId("huge"), "".join(chr(noise.randrange(1, 9000)) for _ in range(10**6))
    )
    with pytest.raises(Unavailable, match=r"agent of \d+ bytes \(huge\)"):
        await store.commit([*agents(1), huge])
    assert AgentId("A0") not in (await store.load()).agents


async def test_unreadable_records_are_named(masters: Masters) -> None:
    _, store = await masters.leading()
    await store.commit(agents(1))
    await put(masters, "records/agent/A0", b"{")
    await put(masters, "records/agent/A1", b"x\x9c nonsense")
    await put(masters, "records/task/F/t", b'{"task_id": 1}')
    await put(masters, "records/cat/tom", b"{}")
    with pytest.raises(InvalidRequest) as refused:
        await store.load()
    text = str(refused.value)
    assert "agent 'A0'" in text
    assert "agent 'A1'" in text
    assert "and 1 more" in text


async def test_stores_of_newer_releases_and_other_programs_are_refused(masters: Masters) -> None:
    _, store = await masters.leading()
    await put(masters, "schema", b"99")
    with pytest.raises(
        InvalidRequest, match="version 99; this master knows only 4: use the newer release"
    ):
        await store.load()
    await put(masters, "schema", b"hello")
    with pytest.raises(InvalidRequest, match="another program's"):
        await store.load()
    await put(masters, "schema", b"2")
    await put(masters, "head", b"hello")
    with pytest.raises(InvalidRequest, match="another program's"):
        await store.load()
    # Of a billion missing parts, only the first is read.
    for head in (b'{"parts": 1e400}', b'{"parts": -1}', b'{"parts": 1000000000}'):
        await put(masters, "head", head)
        with pytest.raises(InvalidRequest):
            async with asyncio.timeout(30):
                await store.load()
    await put(masters, "head", b'{"parts": 0}')
    await put(masters, "schema", b"9" * 5000)
    with pytest.raises(InvalidRequest, match="no version"):
        await store.load()


async def test_a_follower_reads_one_token(masters: Masters) -> None:
    _, store = await masters.leading()
    client = masters.client()
    token = TokenRecord(
        TokenId("a1"), TokenKind.CLIENT, PrincipalName("client/a"), "00" * 32, created_ms=1
    )
    await store.commit([token])
    assert await find_token(client, masters.prefix, token.token_id) == token
    assert await find_token(client, masters.prefix, TokenId("a9")) is None
    await put(masters, "records/token/a1", b"x\x9c nonsense")
    with pytest.raises(CroupierError):
        await find_token(client, masters.prefix, token.token_id)
