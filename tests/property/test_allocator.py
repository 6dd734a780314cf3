"""The allocator against an independent reference in exact fractions, and the DRF properties.

The reference scans every client for every unit, without trees, keys or multipliers. The
properties (sharing incentive, Pareto efficiency) have a slack, because tasks are indivisible, and
are checked only where the slack leaves a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.master.allocator import Allocator, Rules
from croupier.model.demand import Demand
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from tests.harness.allocator_invariants import check_allocator
from tests.harness.effort import portion

NAMES = ("cpus", "mem", "gpus")


@dataclass(frozen=True)
class Client:
    """A framework alone in its role."""

    name: str
    task: tuple[int, ...]
    weight: int
    count: int | None


@dataclass(frozen=True)
class Case:
    """A cluster and its clients, in whole thousandths."""

    agents: tuple[tuple[int, ...], ...]
    clients: tuple[Client, ...]


def amounts(width: int, low: int, high: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*[st.integers(low, high)] * width)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    width = draw(st.integers(1, 3))
    agents = tuple(draw(st.lists(amounts(width, 5, 40), min_size=1, max_size=4)))
    clients = []
    for number in range(draw(st.integers(1, 5))):
        task = draw(amounts(width, 0, 9).filter(any))
        weight = draw(st.sampled_from([1000, 1000, 2000, 3000, 500]))
        count = draw(st.one_of(st.none(), st.none(), st.integers(0, 6)))
        clients.append(Client(f"c{number}", task, weight, count))
    return Case(agents, tuple(clients))


def resources(amount: tuple[int, ...]) -> Resources:
    return Resources(dict(zip(NAMES, amount, strict=False)))


def filled(allocator: Allocator, case: Case) -> list[tuple[FrameworkId, int]]:
    """Add the agents; return the allocated units in order, as (framework, agent)."""
    for number, total in enumerate(case.agents):
        allocator.add_agent(AgentId(str(number)), resources(total))
    deals = []
    while allocator.has_dirty_agents:
        for grant in allocator.run(0.0, budget=3):
            deals += [(n, grant.framework_id, int(grant.agent_id)) for n in grant.deals]
        check_allocator(allocator)
    return [(framework_id, agent) for _, framework_id, agent in sorted(deals)]


def dealt(case: Case) -> Sequence[tuple[str, int]]:
    """Return the allocated units in order, as (client, agent)."""
    settings = {Role(client.name): RoleSettings(client.weight) for client in case.clients}
    allocator = Allocator(
        None, Rules(hold_s=0, scarce=frozenset(), remembers_misfits=True), settings
    )
    for client in case.clients:
        framework_id = FrameworkId(client.name)
        allocator.add_framework(framework_id, (Role(client.name),))
        allocator.set_demand(framework_id, (Demand(resources(client.task), client.count),))
        allocator.connect(framework_id, True)
    return filled(allocator, case)


def dealt_to_principals(case: Case, splits: list[int]) -> list[tuple[str, int]]:
    """Return the allocated units in order, as (principal, agent).

    Each client is a principal with several frameworks, all in one role.
    """
    allocator = Allocator(None, Rules(hold_s=0, scarce=frozenset(), remembers_misfits=True))
    owners = {}
    for client, parts in zip(case.clients, splits, strict=False):
        for part in range(parts):
            framework_id = FrameworkId(f"{client.name}-{part}")
            owners[framework_id] = client.name
            allocator.add_framework(framework_id, (Role("*"),), f"client/{client.name}")
            count = client.count
            if count is not None:
                count = count // parts + (part < count % parts)
            allocator.set_demand(framework_id, (Demand(resources(client.task), count),))
            allocator.connect(framework_id, True)
    return [(owners[name], agent) for name, agent in filled(allocator, case)]


def reference(case: Case) -> list[tuple[str, int]]:
    """Return the units that the definition allocates.

    It fills one agent after the other, and gives each unit to the client with the smallest weighted
    dominant share among those whose task fits.
    """
    total = [sum(agent[r] for agent in case.agents) for r in range(len(case.agents[0]))]
    tasks = {client.name: 0 for client in case.clients}
    last = {client.name: 0 for client in case.clients}
    deals: list[tuple[str, int]] = []
    for number, agent in enumerate(case.agents):
        free = list(agent)
        while True:
            fitting = [
                client
                for client in case.clients
                if all(need <= have for need, have in zip(client.task, free, strict=True))
                and (client.count is None or tasks[client.name] < client.count)
            ]
            if not fitting:
                break

            def standing(client: Client) -> tuple[Fraction, int, int]:
                share = max(
                    Fraction(need * tasks[client.name], capacity)
                    for need, capacity in zip(client.task, total, strict=True)
                )
                order = case.clients.index(client)
                return share / client.weight, last[client.name], order

            chosen = min(fitting, key=standing)
            free = [have - need for have, need in zip(free, chosen.task, strict=True)]
            tasks[chosen.name] += 1
            deals.append((chosen.name, number))
            last[chosen.name] = len(deals)
    return deals


@settings(max_examples=portion(400), deadline=None)
@given(cases())
def test_every_grant_equals_the_reference(case: Case) -> None:
    assert dealt(case) == reference(case)


@settings(max_examples=portion(250), deadline=None)
@given(cases(), st.lists(st.integers(1, 12), min_size=5, max_size=5))
def test_a_principal_gains_nothing_by_splitting_into_frameworks(
    case: Case, splits: list[int]
) -> None:
    """Principals that share a role are dealt to as the reference deals to single clients."""
    clients = tuple(replace(client, weight=1000) for client in case.clients)
    shared = Case(case.agents, clients)
    assert dealt_to_principals(shared, splits) == reference(shared)
