"""Commands find the leading master through any master that they know."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from croupier.net.transport import free_addresses
from croupier.v1 import operator_pb2 as pb
from tests.harness.command import croupier
from tests.harness.eventually import eventually
from tests.harness.operators import ScriptedOperator, serving

BOUND_S = 5.0


def follow(operator: ScriptedOperator, leader: str) -> None:
    operator.answers[pb.GetMasterRequest] = pb.GetMasterResponse(leader_address=leader)


@asynccontextmanager
async def operators(number: int) -> AsyncIterator[list[ScriptedOperator]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(serving(ScriptedOperator())) for _ in range(number)]


def listed(operator: ScriptedOperator) -> bool:
    return any(isinstance(asked, pb.ListAgentsRequest) for asked in operator.asked)


async def test_the_leader_is_found_in_a_list_and_behind_a_follower() -> None:
    async with operators(2) as (follower, leader):
        follow(follower, leader.address)
        for known in (f"{follower.address},{leader.address}", follower.address):
            done = await croupier("agents", "--master", known)
            assert done.code == 0, done.err
            assert listed(leader)
            assert not listed(follower)
            leader.asked.clear()


async def test_a_dead_or_hanging_master_does_not_delay_the_others() -> None:
    [dead] = free_addresses(1)
    async with operators(2) as (hanging, leader):
        hanging.hangs = True
        begun = time.monotonic()
        done = await croupier("agents", "--master", f"{dead},{hanging.address},{leader.address}")
        assert done.code == 0, done.err
        assert time.monotonic() - begun < BOUND_S


async def test_a_command_waits_for_a_short_election() -> None:
    async with operators(2) as (one, other):
        follow(one, "")
        follow(other, "")
        running = asyncio.create_task(croupier("agents", "--master", one.address))
        await eventually(lambda: len(one.asked) >= 3)
        follow(one, other.address)
        other.answers[pb.GetMasterRequest] = pb.GetMasterResponse(leader=True)
        done = await running
        assert done.code == 0, done.err
        assert listed(other)


async def test_no_leader_is_one_line_within_five_seconds() -> None:
    async with operators(1) as (follower,):
        follow(follower, "")
        begun = time.monotonic()
        done = await croupier("agents", "--master", follower.address)
        assert time.monotonic() - begun < BOUND_S
        assert done.code == 1
        assert done.err == (
            f"croupier: no master leads right now, say {follower.address}; waited 3.5 s for one to"
            " be elected; try again in a few seconds\n"
        )


async def test_an_unreachable_leader_is_named_with_its_follower() -> None:
    [dead] = free_addresses(1)
    async with operators(1) as (follower,):
        follow(follower, str(dead))
        done = await croupier("agents", "--master", follower.address)
        assert done.code == 1
        assert done.err == (
            f"croupier: {dead} leads, says {follower.address}, but: cannot reach a master at"
            f" {dead} (is one running there?)\n"
        )
