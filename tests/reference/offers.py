"""The order of offers that are declined, with filters that end by time or by round.

Each cycle offers all free resources of each agent once. A declining client is not offered the agent
again for a while; with rounds, not before every other client was offered it (Apache Mesos has no
rounds: MESOS-6111).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from croupier.lab.solvers.filling import Machines
from croupier.lab.solvers.pools import Forest, Pool
from tests.reference.rules import MinSatisfactionByUse


@dataclass(frozen=True, slots=True)
class _Refusal:
    amounts: Sequence[Fraction]
    until: Fraction
    round: int


class OfferLoop:
    """Agents offered to clients that decline, all but one.

    Attributes:
        first_offer: the cycle, from 0, of the first offer to each client.
    """

    def __init__(
        self, forest: Forest, machines: Machines, *, is_fair: bool, refuse: Fraction
    ) -> None:
        """With `is_fair`, use rounds, and break ties by the oldest offer.

        Otherwise filters end `refuse` cycles after they were set, and ties go by rank.
        """
        self._forest = forest
        self._machines = machines
        self._is_fair = is_fair
        self._refuse = refuse
        self._rule = MinSatisfactionByUse()
        self._refusals: dict[tuple[Pool, int], _Refusal] = {}
        self._rounds = [0] * len(machines.free)
        self.first_offer: dict[Pool, int] = {}

    def run(self, willing: Pool, cycles: int) -> None:
        """Run until `willing` gets an offer, or for so many cycles."""
        for cycle in range(cycles):
            for agent in range(len(self._machines.free)):
                self._offer(agent, cycle)
            if willing in self.first_offer:
                return

    def _offer(self, agent: int, cycle: int) -> None:
        free = self._machines.free[agent]
        if not any(free):
            return

        def is_asked(client: Pool) -> bool:
            return client.wants and not self._is_refused(client, agent, cycle)

        client = self._rule.pick(self._forest, is_asked)
        if client is None:
            self._rounds[agent] += 1
            return
        self.first_offer.setdefault(client, cycle)
        if self._is_fair:
            latest = max(self._forest.rank.values())
            self._forest.rank.update(dict.fromkeys(client.path_up(), latest + 1))
        until = cycle + self._refuse
        self._refusals[client, agent] = _Refusal(free, until, self._rounds[agent])

    def _is_refused(self, client: Pool, agent: int, cycle: int) -> bool:
        refusal = self._refusals.get((client, agent))
        if refusal is None:
            return False
        free = self._machines.free[agent]
        if any(f > r for f, r in zip(free, refusal.amounts, strict=True)):
            return False
        is_same_round = self._is_fair and refusal.round == self._rounds[agent]
        return cycle < refusal.until or is_same_round
