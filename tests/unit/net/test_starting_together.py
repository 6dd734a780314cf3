"""The waits of a client whose master may be starting together with it."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from croupier.model.errors import Unavailable
from croupier.net import client_session
from croupier.net.address import Address
from croupier.net.client_session import ClientSession, SessionTimes
from croupier.net.leader_search import Masters

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
