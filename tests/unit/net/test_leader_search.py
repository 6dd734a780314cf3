"""The search for the leader among several masters, with scripted answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from croupier.model.errors import CroupierError, Unauthenticated, Unavailable
from croupier.net.address import Address
from croupier.net.leader_search import AGAIN_S, LeaderAnswer, LeaderSearch

A, B, C = (Address("host", port) for port in (1, 2, 3))
LEADS = LeaderAnswer(True, None)
Answer = LeaderAnswer | CroupierError


class Masters:
    """Masters that give their answers in turn, and the last one from then on."""

    def __init__(self, answers: dict[Address, Sequence[Answer]]) -> None:
        self._answers = {address: list(several) for address, several in answers.items()}
        self.asked: list[Address] = []

    async def ask(self, address: Address, timeout_s: float) -> LeaderAnswer:
        self.asked.append(address)
        left = self._answers.get(address)
        if left is None:
            await asyncio.sleep(timeout_s)
            raise Unavailable(f"{address} did not answer")
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, CroupierError):
            raise answer
        return answer


async def test_all_masters_are_asked_at_once() -> None:
    masters = Masters({B: [LEADS]})
    assert await LeaderSearch(masters.ask, 5.0).run([A, B]) == B
    assert masters.asked == [A, B], "A hangs, and B is not delayed"


async def test_a_follower_leads_to_a_leader_that_is_not_listed() -> None:
    masters = Masters({A: [LeaderAnswer(False, C)], C: [LEADS]})
    assert await LeaderSearch(masters.ask, 5.0).run([A]) == C


async def test_followers_are_asked_again_until_one_leads() -> None:
    follows = LeaderAnswer(False, None)
    masters = Masters({A: [follows, follows, LEADS]})
    begun = asyncio.get_running_loop().time()
    assert await LeaderSearch(masters.ask, 5.0).run([A]) == A
    assert masters.asked == [A] * 3
    assert asyncio.get_running_loop().time() - begun >= 2 * AGAIN_S


async def test_an_election_that_does_not_end_is_an_error_that_names_the_followers() -> None:
    masters = Masters({A: [LeaderAnswer(False, None)]})
    with pytest.raises(Unavailable, match=r"no master leads right now, say host:1; waited 0\.5 s"):
        await LeaderSearch(masters.ask, 0.5).run([A])


async def test_an_unreachable_leader_is_an_error_that_names_the_follower() -> None:
    masters = Masters({A: [LeaderAnswer(False, B)], B: [Unavailable("no route")]})
    with pytest.raises(Unavailable, match="host:2 leads, says host:1, but: no route"):
        await LeaderSearch(masters.ask, 0.5).run([A])


async def test_a_refusal_is_the_error_although_followers_answer() -> None:
    follows = LeaderAnswer(False, None)
    expired = Unauthenticated("the credential has expired")
    masters = Masters({A: [follows], B: [follows], C: [expired]})
    with pytest.raises(Unauthenticated, match="has expired"):
        await LeaderSearch(masters.ask, 0.5, by_token=True).run([A, B, C])


async def test_a_refusal_by_a_leader_that_a_follower_names_is_the_error() -> None:
    masters = Masters({A: [LeaderAnswer(False, B)], B: [Unauthenticated("revoked")]})
    with pytest.raises(Unauthenticated, match=r"^revoked$"):
        await LeaderSearch(masters.ask, 0.5).run([A])


async def test_a_caller_with_a_token_is_told_to_list_all_token_ports() -> None:
    masters = Masters({A: [LeaderAnswer(False, None)]})
    told = r"host:1 follows, .* does not tell callers with a token .* list the token ports of all"
    with pytest.raises(Unavailable, match=told):
        await LeaderSearch(masters.ask, 0.5, by_token=True).run([A])


async def test_the_error_of_the_first_master_is_raised_if_none_answers() -> None:
    masters = Masters({A: [Unavailable("no route to A")], B: [Unavailable("no route to B")]})
    with pytest.raises(Unavailable, match="no route to A"):
        await LeaderSearch(masters.ask, 0.5).run([A, B])


async def test_no_question_is_left_open() -> None:
    before = asyncio.all_tasks()
    masters = Masters({B: [LEADS]})
    await LeaderSearch(masters.ask, 5.0).run([A, B])
    assert asyncio.all_tasks() == before
