"""The engine's allocator offering whole agents to clients that decline, all but one."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from croupier.master.allocator import Allocator, Rules
from croupier.master.allocator.agent_pool import Useful
from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId, FrameworkId
from croupier.model.resources import Resources
from croupier.sim.engine_terms import Terms, role_of
from croupier.sim.solvers.filling import demand_of
from croupier.sim.solvers.pools import Forest, Pool

_ELSEWHERE = AgentId("elsewhere")


class _Any(Useful):
    """Every remainder is worth offering."""

    def holds(self, free: Resources) -> bool:
        """Return whether anything is free."""
        return bool(free)


class EngineDecliners:
    """Frameworks that declare no demand and decline every offer."""

    def __init__(
        self, forest: Forest, machines: Sequence[Sequence[Fraction]], capacity: Sequence[Fraction]
    ) -> None:
        """Add an agent for each machine, and one for the part of `capacity` that no machine has.

        Raises:
            InvalidRequest: if the engine cannot hold its weights or amounts, or the machines
                have more than `capacity`.
        """
        self._terms = terms = Terms(forest, machines)
        rules = Rules(_Any(), hold_s=0.0, scarce=frozenset())
        self._allocator = Allocator(None, rules, terms.settings())
        self._ids: dict[Pool, FrameworkId] = {}
        for number, client in enumerate(terms.clients()):
            framework_id = FrameworkId(f"f{number}")
            self._ids[client] = framework_id
            self._allocator.add_framework(framework_id, (role_of(client),))
            self._allocator.connect(framework_id, client.wants)
        on_machines = [sum(parts, Fraction(0)) for parts in zip(*machines, strict=True)]
        rest = [total - there for total, there in zip(capacity, on_machines, strict=True)]
        if min(rest) < 0:
            raise InvalidRequest("the machines have more than the cluster")
        for index, machine in enumerate(machines):
            self._allocator.add_agent(AgentId(f"a{index}"), terms.resources(machine))
        self._allocator.add_agent(_ELSEWHERE, terms.resources(rest))
        self._allocator.activate_agent(_ELSEWHERE, False)

    def charge_elsewhere(self, client: Pool, count: int) -> None:
        """Charge `count` tasks of the client that run on no offered machine.

        Raises:
            InvalidRequest: if there is no room for them elsewhere.
        """
        amount = self._terms.resources(count * need for need in demand_of(client))
        if not amount <= self._allocator.queries.free(_ELSEWHERE):
            raise InvalidRequest("tasks that run before are on the machines that are offered")
        self._allocator.charges.charge(self._ids[client], role_of(client), _ELSEWHERE, amount)

    def run(self, willing: Pool, cycles: int, refuse: Fraction) -> int | None:
        """Return the cycle, from 0, of the first offer to `willing`; None if there is none.

        Resources that are declined in a cycle are offered to the next client in the next cycle.
        """
        for cycle in range(cycles):
            self._allocator.wake(float(cycle))
            grants = []
            while self._allocator.has_dirty_agents:
                grants += self._allocator.run(float(cycle))
            self._allocator.check()
            if any(grant.framework_id == self._ids[willing] for grant in grants):
                return cycle
            for grant in grants:
                self._allocator.settle_offers(
                    *grant.place,
                    grant.units,
                    unused=grant.resources,
                    refused_until=cycle + float(refuse),
                )
        return None
