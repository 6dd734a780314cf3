"""Recovery of a new term: which agents of the registry have not re-registered.

The registry holds the agents and their tasks; only the agents know the states of those tasks.
Recovery is complete once each agent has re-registered or become unreachable.
"""

from __future__ import annotations

import asyncio

from croupier.master.core.deadlines import AgentTimeout
from croupier.master.core.state import State
from croupier.model.clock import Clock
from croupier.process.logging import get_logger

POLL_S = 0.25

_log = get_logger("croupier.master")


class Recovery:
    """Recovery of one term.

    Attributes:
        began_at: when the term began, in seconds on the master's clock.
        agents: agents in the registry when the term began.
        tasks: tasks of these agents in the registry.
        complete_s: time from the start of the term until no agent was missing; None before.
    """

    def __init__(self, state: State, clock: Clock) -> None:
        self._state, self._clock = state, clock
        self.agents = agents_missing(state)
        self.tasks = tasks_undecided(state)
        self.began_at = clock.now()
        self.complete_s: float | None = None

    async def watch(self) -> None:
        """Wait until no agent is missing, and log it."""
        missing = self.agents
        while missing:
            await asyncio.sleep(POLL_S)
            missing = agents_missing(self._state)
        self.complete_s = self._clock.now() - self.began_at
        if self.agents:
            _log.info(
                "recovery_complete",
                agents=self.agents,
                tasks=self.tasks,
                took_s=round(self.complete_s, 3),
            )


def agents_missing(state: State) -> int:
    """Return the number of agents that have not re-registered yet, stopped ones left out."""
    return sum(agent.is_absent and not agent.is_stopped for agent in state.agents.values())


def tasks_undecided(state: State) -> int:
    """Return the number of tasks whose agents have not re-registered yet. O(agents + those)."""
    absent = (agent for agent in state.agents.values() if agent.is_absent)
    return sum(task.is_absent for agent in absent for task in agent.tasks.values())


def recovery_timeout_s(state: State, now: float) -> float:
    """Return the time until the last missing agent becomes unreachable; 0 if none is missing."""
    deadlines = [
        state.deadlines.at(AgentTimeout(agent.agent_id))
        for agent in state.agents.values()
        if agent.is_absent
    ]
    return max((at - now for at in deadlines if at is not None), default=0.0)
