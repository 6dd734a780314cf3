"""How often agents send heartbeats, by their number."""

import pytest

from croupier.master.core.settings import Settings


@pytest.mark.parametrize(
    ("agents", "heartbeat_s", "suspect_s"),
    [(1, 15.0, 37.5), (6_000, 15.0, 37.5), (8_000, 20.0, 50.0), (100_000, 25.0, 62.5)],
)
def test_many_agents_send_heartbeats_less_often(
    agents: int, heartbeat_s: float, suspect_s: float
) -> None:
    settings = Settings()
    assert settings.agent_heartbeat_s(agents) == heartbeat_s
    assert settings.suspect_s(agents) == suspect_s


def test_an_agent_that_keeps_a_long_interval_is_not_suspect_when_others_leave() -> None:
    settings = Settings(heartbeat_s=1.0)
    assert settings.agent_heartbeat_s(10_000) < settings.suspect_s(1)


def test_an_interval_that_is_long_for_the_timeout_stays() -> None:
    assert Settings(heartbeat_s=30.0).agent_heartbeat_s(10_000) == 30.0
