"""A throttle for facts that one peer can cause in masses."""

from __future__ import annotations

import time
from zlib import crc32

from croupier.master.core import facts
from croupier.model.log_throttle import LogThrottle

# At most 16 refusals of agents, and of their tasks, are noted per minute.
REFUSALS_AT_ONCE, REFUSED_AGAIN_S = 16, 60.0
# In this time, one change each way of an agent's health is noted.
HEALTH_AGAIN_S = 1.0


class FactThrottle:
    """Says which facts to note in a log."""

    def __init__(self) -> None:
        self._refusals = LogThrottle(REFUSED_AGAIN_S)
        self._health = LogThrottle(HEALTH_AGAIN_S)

    def is_due(self, fact: facts.Fact) -> bool:
        """Return whether to note a fact; most kinds always are."""
        match fact:
            case facts.AgentRefused() | facts.TasksUnproven():
                # Agents retry, and a peer can invent hostnames.
                group = crc32(fact.hostname.encode(errors="replace")) % REFUSALS_AT_ONCE
                return self._refusals.is_due((type(fact), group), time.monotonic())
            case facts.AgentUnhealthy() | facts.AgentHealthy():
                key = (type(fact), fact.agent_id)
                return self._health.is_due(key, time.monotonic())
            case _:
                return True
