"""Mode fifo: first come, first served, by the live policy.

Rule: the whole allocator runs the policy, with all clients present from the start. Placement
`first-fit` is its agent order `arrival`, and `spread` its order `spread`. No agent order finds
the `best` placement: there the tasks of all clients but the last start where the search puts
them, and the allocator allocates the rest.
"""

from __future__ import annotations

from fractions import Fraction

from croupier.lab.solvers.best_placement import place_best
from croupier.lab.solvers.filling import Machines
from croupier.lab.vectors.facts import Got
from croupier.lab.vectors.forests import ALLOCATOR, engine_cluster
from croupier.lab.vectors.modes import Runs
from croupier.lab.vectors.outcome import TaskOutcome, user_of
from croupier.lab.vectors.vector import Unreadable, Vector, shortened
from croupier.model.ids import AgentId

_AGENT_ORDERS = {"best": "arrival", "first-fit": "arrival", "spread": "spread"}


def run_fifo(vector: Vector, policy: str) -> Runs:
    """Serve clients in order; the first of `tie_break`, or of the list, came first."""
    if policy != "fifo" or vector.pools():
        raise Unreadable("mode fifo is for policy fifo, without pools")
    placement = vector.placement or "first-fit"
    if placement not in _AGENT_ORDERS:
        known = ", ".join(_AGENT_ORDERS)
        raise Unreadable(f"placement {shortened(placement)} is not one of {known}")
    if not all(any(vector.demands[client]) for client in vector.clients):
        raise Unreadable("a task takes nothing")
    cluster = engine_cluster(vector, policy, _AGENT_ORDERS[placement])
    clients = sorted(cluster.forest.root.clients(), key=cluster.forest.rank.__getitem__)
    if placement == "best":
        users = [user_of(vector, client.path) for client in clients]
        for index, row in enumerate(place_best(Machines(vector.machines()), users).placed):
            for client, count in zip(clients, row, strict=False):
                for _ in range(count):
                    cluster.found(client, AgentId(f"a{index}"))
                cluster.declare_demand(client)
    cluster.fill()
    tasks = {client.path: Fraction(client.tasks) for client in clients}
    left_after: dict[str, list[Fraction]] = {}
    left = vector.total()
    for path, started in tasks.items():
        left = [
            have - started * need for have, need in zip(left, vector.demands[path], strict=True)
        ]
        left_after[path] = left

    def left_by(_: object, client: str) -> Got:
        vector.check_client(client)
        return left_after[client]

    yield ALLOCATOR, TaskOutcome(vector, tasks, more=[("left_after_(.+)", left_by)]).facts
