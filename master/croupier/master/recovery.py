"""How far a new term is in learning how things stand.

The registry says which agents there were and what they were to run; how that runs, only they
can say. Recovery is complete once each of them has come back or was given up.
"""

from __future__ import annotations

import asyncio

from croupier.master.core.deadlines import AgentTimeout
from croupier.master.core.state import State
from croupier.model.clock import Clock
from croupier.process.logging import get_logger

LOOK_S = 0.25

_log = get_logger("croupier.master")


class Recovery:
    """One term's.

    Attributes:
        agents: how many the registry knew when the term began.
        tasks: of these, likewise.
        began_at: when the term began, on the master's clock.
        complete_s: how long it took until nothing was missing; None while something is.
    """

    def __init__(self, state: State, clock: Clock) -> None:
        """Of `state`, of which no agent has come back yet."""
        self._state, self._clock = state, clock
        self.agents = agents_missing(state)
        self.tasks = tasks_undecided(state)
        self.began_at = clock.now()
        self.complete_s: float | None = None

    async def watch(self) -> None:
        """Wait until nothing is missing, and say so."""
        missing = self.agents
        while missing:
            await asyncio.sleep(LOOK_S)
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
    """How many agents of the registry have not come back yet. O(agents)."""
    return sum(agent.is_recovering for agent in state.agents.values())


def tasks_undecided(state: State) -> int:
    """How many tasks of the registry wait for their agents. O(tasks)."""
    return sum(
        task.is_undecided
        for framework in state.frameworks.values()
        for task in framework.tasks.values()
    )


def decided_in_s(state: State, now: float) -> float:
    """Within how long the last of the missing agents will be given up; 0 if none is missing."""
    deadlines = [
        state.deadlines.at(AgentTimeout(agent.agent_id))
        for agent in state.agents.values()
        if agent.is_recovering
    ]
    return max((at - now for at in deadlines if at is not None), default=0.0)
