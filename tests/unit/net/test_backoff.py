"""Waits grow up to their cap, are never zero, and are random."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from croupier.model.errors import Unavailable
from croupier.net import client_session
from croupier.net.address import Address
from croupier.net.backoff import Backoff
from croupier.net.client_session import ClientSession, SessionTimes
from croupier.net.leader_search import Masters


def test_the_bound_doubles_up_to_the_cap() -> None:
    for seed in range(50):
        backoff = Backoff(0.1, 1.0, random.Random(seed))
        for bound in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0):
            assert 0.01 <= backoff.next_s() <= bound


def test_reset_begins_again() -> None:
    backoff = Backoff(0.1, 100.0, random.Random(1))
    for _ in range(10):
        backoff.next_s()
    backoff.reset()
    assert backoff.next_s() <= 0.1


def test_the_first_wait_obeys_the_cap_too() -> None:
    waits = [Backoff(10.0, 1.0, random.Random(seed)).next_s() for seed in range(50)]
    assert max(waits) <= 1.0


def test_peers_are_spread() -> None:
    waits = {Backoff(1.0, 1.0, random.Random(seed)).next_s() for seed in range(50)}
    assert len(waits) == 50


def test_a_new_cap_holds_from_now_on() -> None:
    for seed in range(50):
        backoff = Backoff(0.2, 10.0, random.Random(seed))
        for _ in range(8):
            backoff.next_s()
        backoff.limit(1.0)
        assert max(backoff.next_s() for _ in range(5)) <= 1.0


# The waits of a client whose master may be starting together with it.


LOCAL, REMOTE = Address("127.0.0.1", 5050), Address("192.0.2.1", 5050)
LONG = SessionTimes(backoff_first_s=60.0, backoff_cap_s=60.0)


class Longest(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return b


@pytest.mark.parametrize(
    ("address", "seconds", "has_joined", "wait_s"),
    [(LOCAL, 1, False, 0.1), (LOCAL, 11, False, 60), (LOCAL, 1, True, 60), (REMOTE, 1, False, 60)],
)
def test_only_a_new_client_of_this_machines_master_tries_often(
    monkeypatch: pytest.MonkeyPatch,
    address: Address,
    seconds: float,
    has_joined: bool,
    wait_s: float,
) -> None:
    now = SimpleNamespace(at=0.0)
    monkeypatch.setattr(client_session, "_now", lambda: now.at)
    owner: Any = None
    session: ClientSession[Any, Any, Any] = ClientSession(
        owner,
        Masters([address]),
        LONG,
        Longest(),
        is_fatal=lambda _: False,
        outbox_messages=1,
        outbox_bytes=1,
    )
    session.address = address
    if has_joined:
        session.join(1.0)
    now.at = seconds
    assert session._wait_s(Unavailable("refused")) == wait_s
