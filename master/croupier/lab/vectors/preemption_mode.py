"""Mode preemption: clients that hold everything, and clients that come later and starve."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction

from croupier.lab.solvers.filling import Machines, demand_of
from croupier.lab.solvers.pools import Forest, Pool
from croupier.lab.vectors.facts import Fact, Got
from croupier.lab.vectors.forests import ENGINE, engine_cluster, initial_machine
from croupier.lab.vectors.modes import Runs
from croupier.lab.vectors.vector import Unreadable, Vector, positive, shortened
from croupier.model.ids import AgentId

DEFAULT_TOLERANCE = Fraction(4, 5)
_HOLDS = re.compile(r"(\S+) holds everything")


# The clients with their use, and when each killed task was started, by number, in order of kills.
PreemptionRun = tuple[Forest, Sequence[int]]


def run_preemption(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:  # noqa: ARG001
    """Start the holders' tasks; then let the other clients ask, and preempt for the starving.

    An expected amount that is a single number is of the first resource.
    """
    check_preemption(vector, policy)
    yield ENGINE, preemption_facts(lambda tolerance: _on_engine(vector, tolerance))


def check_preemption(vector: Vector, policy: str) -> None:
    """Refuse a vector that mode preemption does not understand.

    Raises:
        Unreadable: if so.
    """
    if policy != "min-sat-entitlement":
        raise Unreadable(f"policy {shortened(policy)} does not preempt")
    if vector.guarantee:
        raise Unreadable("mode preemption does not know guarantees")
    check_words(vector, _HOLDS)


def preemption_facts(preempt: Callable[[Fraction], PreemptionRun]) -> list[Fact]:
    """Return the facts of the mode; `preempt` runs it with a tolerance."""
    runs: dict[Fraction, PreemptionRun] = {}

    def at(tolerance: Fraction) -> PreemptionRun:
        if tolerance > 1:
            raise Unreadable("a tolerance is above 1")
        if tolerance not in runs:
            runs[tolerance] = preempt(tolerance)
        return runs[tolerance]

    def named(text: str) -> PreemptionRun:
        return at(positive(text, "a tolerance"))

    def starts(wanted: object, run: PreemptionRun) -> Got:
        # As many as are expected; if none are, there must have been none.
        length = len(wanted) if isinstance(wanted, list) and wanted else None
        return [Fraction(started) for started in run[1][:length]]

    return [
        ("end", lambda wanted: _held(wanted, at(DEFAULT_TOLERANCE))),
        ("after_tolerance_(.+)", lambda wanted, text: _held(wanted, named(text))),
        ("preemptions", lambda _: len(at(DEFAULT_TOLERANCE)[1])),
        ("preemptions_(.+)", lambda _, text: len(named(text)[1])),
        ("first_victim_starts", lambda wanted: starts(wanted, at(DEFAULT_TOLERANCE))),
        ("first_victim_starts_(.+)", lambda wanted, text: starts(wanted, named(text))),
    ]


def _on_engine(vector: Vector, tolerance: Fraction) -> PreemptionRun:
    cluster = engine_cluster(vector, "min-sat-entitlement")
    forest = cluster.forest
    holders, asking = split_clients(vector, forest)
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
    cluster.allocator.check()
    return forest, [task.started for task in cluster.killed]


def split_clients(vector: Vector, forest: Forest) -> tuple[list[Pool], list[Pool]]:
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
    """Refuse an event in which `known` finds nothing.

    Raises:
        Unreadable: if there is one.
    """
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


def _held(wanted: object, run: PreemptionRun) -> Got:
    """Return what clients hold; of the first resource if a single number is expected."""
    amounts = {client.path: list(client.used) for client in run[0].root.clients()}
    in_full = isinstance(wanted, dict) and any(isinstance(item, list) for item in wanted.values())
    return {path: used if in_full else used[0] for path, used in amounts.items()}
