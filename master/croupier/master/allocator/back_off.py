"""Back-off: a party that leaves offers unanswered comes last for some time.

A party is a principal with all its frameworks, or a framework without an owner. Offers of one agent
to a party follow each other in a row if there is no launch between them and the agent was away from
the party for less than a moment. A row of `PATIENCE_S` or more is unanswered: when it ends in
another way than by a launch, the party backs off. It makes no difference whether the party lets a
lease end, declines late, passes the agent from one of its frameworks to the next, or disconnects.

While a party backs off, it is offered only what no other framework can use, and its offers end
early once another framework, or a submitted task, waits. So the offers of one party keep an agent
from others for at most `PATIENCE_S` and one lease, and then for at most `MOMENT_S` at a time until
the back-off is over. Its submitted tasks keep their place in the order.
Each back-off is twice as long as the one before; one step is forgotten in every `FORGET_S` without
any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import Final

from croupier.model.ids import AgentId, FrameworkId

# The owner of a framework, or empty and the framework's id.
Party = tuple[str, str]

# Seconds for which a party may keep an agent without a launch.
PATIENCE_S: Final = 5.0
# Offers of an agent to one party that are further apart are not in a row: meanwhile the agent was
# dealt to another party, or no other could use it.
GAP_S: Final = 1.0
# How soon an offer to a party that backs off ends if another framework waits.
MOMENT_S: Final = 1.0
# The first back-off, and how often it doubles.
FIRST_S: Final = 10.0
DOUBLINGS: Final = 5
FORGET_S: Final = 300.0
# How many of the oldest parties are looked at when one begins to back off.
_DROPPED_AT_ONCE = 8


def party_of(framework_id: FrameworkId, owner: str) -> Party:
    """Return the party of a framework."""
    return (owner, "") if owner else ("", framework_id)


@dataclass(frozen=True, slots=True)
class _Strikes:
    """The back-offs of a party: how many counted at the end of the latest, and that end."""

    count: int
    until: float

    def left(self, now: float) -> int:
        """Return how many are not forgotten."""
        return max(self.count - int(max(now - self.until, 0) // FORGET_S), 0)


class BackOff:
    """The parties that back off, and the rows of offers that may make one do so."""

    def __init__(self) -> None:
        # When the latest row of offers of an agent to a party began and ended; by its end.
        self._rows: dict[tuple[AgentId, Party], tuple[float, float]] = {}
        # By the time of the last change, like the rows: old ones are dropped from the front.
        self._strikes: dict[Party, _Strikes] = {}
        self._until: dict[Party, float] = {}
        self._next = inf

    def row_since(self, party: Party, agent_id: AgentId, now: float) -> float:
        """Return when the row began that a new offer of the agent is in."""
        since, ended_at = self._rows.get((agent_id, party), (now, -inf))
        return since if now - ended_at < GAP_S else now

    def answered(self, party: Party, agent_id: AgentId) -> None:
        """Note that the party launched a task from an offer of the agent."""
        self._rows.pop((agent_id, party), None)

    def ended(self, party: Party, agent_id: AgentId, since: float, now: float) -> float | None:
        """Note that an offer in a row since `since` ended without a launch.

        Return the seconds for which the party backs off from now on; None if it does not, or
        already did.
        """
        while self._rows:
            key = next(iter(self._rows))
            if now - self._rows[key][1] < GAP_S:
                break
            del self._rows[key]
        if self._next <= now:
            self._until = dict(self.active(now))
            self._next = min(self._until.values(), default=inf)
        self._rows.pop((agent_id, party), None)
        if now - since < PATIENCE_S:
            self._rows[agent_id, party] = since, now
            return None
        return None if party in self.active(now) else self._begin(party, now)

    def active(self, now: float) -> Mapping[Party, float]:
        """Return the parties that back off now, with the end of each back-off. Changes nothing."""
        if now < self._next:
            return self._until
        return {party: until for party, until in self._until.items() if until > now}

    def forget(self, party: Party) -> None:
        """Forget a party that does not return."""
        self._strikes.pop(party, None)
        self._until.pop(party, None)

    def _begin(self, party: Party, now: float) -> float:
        for old in list(islice(self._strikes, _DROPPED_AT_ONCE)):
            if not self._strikes[old].left(now):
                del self._strikes[old]
        strikes = self._strikes.pop(party, None)
        count = 0 if strikes is None else min(strikes.left(now), DOUBLINGS)
        until = now + FIRST_S * (1 << count)
        self._strikes[party] = _Strikes(count + 1, until)
        self._until[party] = until
        self._next = min(self._next, until)
        return until - now
