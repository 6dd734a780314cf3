"""Mode fifo: first come, first served, by definition and by the live policy.

Rule: the live policy is run by the whole allocator, with all clients present from the start.
`first-fit` is its order `arrival` of agents, `spread` its order `spread`. No order of agents
finds the `best` placement: there the tasks of all clients but the last are found running where
the definition puts them, and the allocator deals what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from croupier.master.allocator import Rules
from croupier.master.allocator.policies import Fifo
from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId
from croupier.sim.engine_cluster import EngineCluster
from croupier.sim.solvers.continuous import User
from croupier.sim.solvers.fifo import PLACEMENTS, Served, serve_in_order
from croupier.sim.solvers.filling import Machines
from croupier.sim.solvers.pools import Forest, Pool
from croupier.sim.vectors.facts import Got
from croupier.sim.vectors.forests import ALLOCATOR, REFERENCE, forest_of
from croupier.sim.vectors.modes import Runs
from croupier.sim.vectors.numbers import Unreadable, shortened
from croupier.sim.vectors.outcome import TaskOutcome
from croupier.sim.vectors.vector import Vector

_AGENT_ORDERS = {"first-fit": "arrival", "spread": "spread", "best": "arrival"}


def run_fifo(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:
    """First come, first served; the first of `tie_break`, or of the list, came first."""
    if policy != "fifo" or vector.pools():
        raise Unreadable("mode fifo is for policy fifo, without pools")
    placement = vector.placement or "first-fit"
    if placement not in PLACEMENTS:
        raise Unreadable(f"placement {shortened(placement)} is not one of {', '.join(PLACEMENTS)}")
    forest = forest_of(vector)
    clients = _in_order(forest)
    users = [_user(vector, client) for client in clients]
    served = serve_in_order(Machines(vector.machines()), users, placement)
    yield REFERENCE, _outcome(vector, clients, served.counts, served.lefts, others)
    forest = forest_of(vector)
    clients = _in_order(forest)
    if _serve_live(vector, forest, clients, placement, served):
        counts = [client.tasks for client in clients]
        yield ALLOCATOR, _outcome(vector, clients, counts, _lefts(vector, clients), others)


def _in_order(forest: Forest) -> list[Pool]:
    return sorted(forest.root.clients(), key=forest.rank.__getitem__)


def _user(vector: Vector, client: Pool) -> User:
    backlog = None if client.backlog is None else Fraction(client.backlog)
    wanted = backlog if vector.is_active(client.path) else Fraction(0)
    return User(vector.demands[client.path], vector.weight(client.path), wanted)


def _serve_live(
    vector: Vector, forest: Forest, clients: Sequence[Pool], placement: str, served: Served
) -> bool:
    """Whether the allocator can hold the vector's numbers; if so, the forest holds its tasks."""
    if not all(any(vector.demands[client.path]) for client in clients):
        return False
    rules = Rules(hold_s=0.0, order=_AGENT_ORDERS[placement], scarce=frozenset())
    try:
        cluster = EngineCluster(forest, vector.machines(), Fifo(), rules)
    except InvalidRequest:
        return False
    for index, counts in enumerate(served.placed):
        for client, count in zip(clients, counts, strict=False):
            for _ in range(count):
                cluster.found(client, AgentId(f"a{index}"))
            cluster.tell_demand(client)
    cluster.fill()
    cluster.allocator.check()
    return True


def _lefts(vector: Vector, clients: Sequence[Pool]) -> list[list[Fraction]]:
    """What the tasks of the first client leave of all machines, of the first two, and so on."""
    lefts, left = [], Machines(vector.machines()).left()
    for client in clients:
        demand = vector.demands[client.path]
        left = [amount - client.tasks * need for amount, need in zip(left, demand, strict=True)]
        lefts.append(left)
    return lefts


def _outcome(
    vector: Vector,
    clients: Sequence[Pool],
    counts: Sequence[int],
    lefts: Sequence[list[Fraction]],
    others: Sequence[Vector],
) -> TaskOutcome:
    paths = [client.path for client in clients]
    by_client = dict(zip(paths, lefts, strict=True))

    def left_after(_: object, client: str) -> Got:
        if client not in by_client:
            raise Unreadable(f"expected names {shortened(client)}, which is not a client")
        return by_client[client]

    tasks = {path: Fraction(count) for path, count in zip(paths, counts, strict=True)}
    return TaskOutcome(vector, tasks, others, more=[("left_after_(.+)", left_after)])
