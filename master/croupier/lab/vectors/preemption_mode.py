"""Mode preemption: clients that hold everything, and clients that come later and starve."""

from __future__ import annotations

import re
from fractions import Fraction

from croupier.lab.engine_cluster import EngineCluster
from croupier.lab.solvers.filling import Machines, demand_of
from croupier.lab.solvers.pools import Forest, Pool
from croupier.lab.vectors.facts import Fact, Got
from croupier.lab.vectors.forests import ENGINE, engine_cluster, initial_machine
from croupier.lab.vectors.modes import Runs
from croupier.lab.vectors.vector import Unreadable, Vector, positive, shortened
from croupier.model.ids import AgentId

DEFAULT_TOLERANCE = Fraction(4, 5)
_HOLDS = re.compile(r"(\S+) holds everything")


def run_preemption(vector: Vector, policy: str) -> Runs:
    """Start the holders' tasks; then let the other clients ask, and preempt for the starving.

    An expected amount that is a single number is of the first resource.
    """
    if policy != "min-sat-entitlement":
        raise Unreadable(f"policy {shortened(policy)} does not preempt")
    if vector.guarantee:
        raise Unreadable("mode preemption does not know guarantees")
    check_words(vector, _HOLDS)
    runs: dict[Fraction, EngineCluster] = {}

    def run_at(text: str | None) -> EngineCluster:
        tolerance = DEFAULT_TOLERANCE if text is None else positive(text, "a tolerance")
        if tolerance > 1:
            raise Unreadable("a tolerance is above 1")
        if tolerance not in runs:
            runs[tolerance] = _preempted(vector, tolerance)
        return runs[tolerance]

    def starts(wanted: object, text: str | None) -> Got:
        # As many as are expected; if none are, there must have been none.
        length = len(wanted) if isinstance(wanted, list) and wanted else None
        return [Fraction(task.started) for task in run_at(text).killed[:length]]

    facts: list[Fact] = [
        ("end|after_tolerance_(.+)", lambda wanted, text: _held(wanted, run_at(text).forest)),
        ("preemptions(?:_(.+))?", lambda _, text: len(run_at(text).killed)),
        ("first_victim_starts(?:_(.+))?", starts),
    ]
    yield ENGINE, facts


def _preempted(vector: Vector, tolerance: Fraction) -> EngineCluster:
    """Return the engine's allocator after preemption."""
    cluster = engine_cluster(vector, "min-sat-entitlement")
    forest = cluster.forest
    holders, asking = _split_clients(vector, forest)
    if cluster.allocator.queries.total != cluster.terms.scalars(vector.capacity):
        raise Unreadable("`capacity` is not the sum of `nodes`")
    for client in forest.root.clients():
        cluster.declare_demand(client)
    if vector.initial:
        machines = Machines(vector.machines())
        for path, count in vector.initial.items():
            client = forest.by_path[path]
            for _ in range(count):
                index = initial_machine(vector, machines, path)
                machines.take(index, demand_of(client))
                cluster.found(client, AgentId(f"a{index}"))
    else:
        holders[0].is_paused = False
        cluster.declare_demand(holders[0])
        cluster.fill()
    for client in asking:
        client.is_paused = False
        cluster.declare_demand(client)
    cluster.preempt(tolerance)
    return cluster


def _split_clients(vector: Vector, forest: Forest) -> tuple[list[Pool], list[Pool]]:
    """Return the clients with tasks at first, and those that ask afterwards; pause all."""
    clients = list(forest.root.clients())
    asking = [client for client in clients if client.wants]
    for client in clients:
        client.is_paused = True
    if not vector.initial:
        return [forest.by_path[_holder(vector)]], asking
    # A client with `initial` tasks asks for no more, unless its backlog says so.
    return [forest.by_path[path] for path in vector.initial], [
        client
        for client in asking
        if client.path not in vector.initial or client.path in vector.backlog
    ]


def check_words(vector: Vector, known: re.Pattern[str]) -> None:
    """Raise Unreadable for an event in which `known` finds nothing."""
    for line in vector.events:
        if not known.search(line):
            raise Unreadable(f"event not understood: {shortened(repr(line))}")


def _holder(vector: Vector) -> str:
    """Return the client that holds everything, from the texts of the vector."""
    for text in (*vector.events, vector.source, vector.note):
        match = _HOLDS.search(text)
        if match and match[1] in vector.clients:
            return match[1]
    raise Unreadable("`initial` is missing, and no words say 'CLIENT holds everything'")


def _held(wanted: object, forest: Forest) -> Got:
    """Return what clients hold; of the first resource if a single number is expected."""
    amounts = {client.path: list(client.used) for client in forest.root.clients()}
    in_full = isinstance(wanted, dict) and any(isinstance(item, list) for item in wanted.values())
    return {path: used if in_full else used[0] for path, used in amounts.items()}
