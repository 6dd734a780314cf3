"""A master tells agents how long to wait between attempts to reconnect."""

from __future__ import annotations

import pytest

from croupier.master import sessions
from croupier.master.core.messages import Registered
from croupier.master.sessions import SessionLimits, Sessions
from croupier.master.wire.to_agent import order_to_wire
from croupier.model.ids import AgentId


@pytest.mark.parametrize(("per_s", "wait_s"), [(2000, 1.0), (2, 2.5), (0.1, 10.0)])
def test_few_agents_come_back_at_once(
    monkeypatch: pytest.MonkeyPatch, per_s: float, wait_s: float
) -> None:
    monkeypatch.setattr(sessions, "PEERS_PER_S", per_s)
    opened = Sessions(SessionLimits())
    assert [opened.open_agent() for _ in range(5)][-1].reconnect_s == wait_s


def test_the_wait_is_sent() -> None:
    order = order_to_wire(Registered(AgentId("a1"), 15.0, "m"), reconnect_s=2.5)
    assert order.registered.reconnect_ms == 2500
