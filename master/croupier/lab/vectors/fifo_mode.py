"""Mode fifo: first come, first served, by the live policy.

Rule: the whole allocator runs the policy, with all clients present from the start. Placement
`first-fit` is its agent order `arrival`, and `spread` its order `spread`. No agent order finds
the `best` placement: there the tasks of all clients but the last start where the search puts
them, and the allocator allocates the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from croupier.lab.solvers.best_placement import place_best
from croupier.lab.solvers.filling import Machines
from croupier.lab.solvers.pools import Forest, Pool
from croupier.lab.vectors.facts import Fact, Got
from croupier.lab.vectors.forests import ALLOCATOR, engine_cluster
from croupier.lab.vectors.modes import Runs
from croupier.lab.vectors.outcome import TaskOutcome, user_of
from croupier.lab.vectors.vector import Unreadable, Vector, shortened
from croupier.model.ids import AgentId

_AGENT_ORDERS = {"best": "arrival", "first-fit": "arrival", "spread": "spread"}


def run_fifo(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:
    """Serve clients in order; the first of `tie_break`, or of the list, came first."""
    placement = placement_of(vector, policy)
    if not all(any(vector.demands[client]) for client in vector.clients):
        raise Unreadable("a task takes nothing")
    cluster = engine_cluster(vector, policy, _AGENT_ORDERS[placement])
    clients = in_order(cluster.forest)
    if placement == "best":
        users = [user_of(vector, client.path) for client in clients]
        for index, row in enumerate(place_best(Machines(vector.machines()), users).placed):
            for client, count in zip(clients, row, strict=False):
                for _ in range(count):
                    cluster.found(client, AgentId(f"a{index}"))
                cluster.declare_demand(client)
    cluster.fill()
    cluster.allocator.check()
    counts = [client.tasks for client in clients]
    yield ALLOCATOR, fifo_outcome(vector, clients, counts, others)


def placement_of(vector: Vector, policy: str) -> str:
    """Return the placement of a vector of mode fifo.

    Raises:
        Unreadable: if it is unknown, or the vector does not fit the mode.
    """
    if policy != "fifo" or vector.pools():
        raise Unreadable("mode fifo is for policy fifo, without pools")
    placement = vector.placement or "first-fit"
    if placement not in _AGENT_ORDERS:
        known = ", ".join(_AGENT_ORDERS)
        raise Unreadable(f"placement {shortened(placement)} is not one of {known}")
    return placement


def in_order(forest: Forest) -> list[Pool]:
    """Return the clients, the first that came first."""
    return sorted(forest.root.clients(), key=forest.rank.__getitem__)


def fifo_outcome(
    vector: Vector, clients: Sequence[Pool], counts: Sequence[int], others: Sequence[Vector]
) -> Sequence[Fact]:
    """Return the facts of the number of tasks of each client, in order."""
    tasks = {client.path: Fraction(n) for client, n in zip(clients, counts, strict=True)}
    left_after: dict[str, list[Fraction]] = {}
    left = Machines(vector.machines()).left()
    for path, count in tasks.items():
        left = [have - count * need for have, need in zip(left, vector.demands[path], strict=True)]
        left_after[path] = left

    def left_by(_: object, client: str) -> Got:
        vector.check_client(client)
        return left_after[client]

    return TaskOutcome(vector, tasks, others, more=[("left_after_(.+)", left_by)]).facts
