"""Modes in which somebody must wait for others: preemption, and offers that are declined."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Protocol

from croupier.master.allocator import Rules
from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId
from croupier.sim.engine_cluster import EngineCluster
from croupier.sim.engine_offers import EngineDecliners
from croupier.sim.policies import Unrotated
from croupier.sim.solvers.filling import Machines, demand_of
from croupier.sim.solvers.offers import OfferLoop, whole_tasks
from croupier.sim.solvers.pools import Forest, Pool
from croupier.sim.solvers.preemption import Preemption
from croupier.sim.vectors.facts import Fact, Got
from croupier.sim.vectors.forests import ENGINE, REFERENCE, forest_of
from croupier.sim.vectors.modes import FactsOnly, Runs
from croupier.sim.vectors.numbers import Unreadable, positive, shortened
from croupier.sim.vectors.vector import Vector

DEFAULT_TOLERANCE = Fraction(4, 5)
DEFAULT_REFUSE = Fraction(5)
_CYCLES = 300
_HOLDS = re.compile(r"(\S+) holds everything")
_REFUSE = re.compile(r"refuse (\d{1,6}(?:\.\d{1,6})?) ?s\b")
_NAIVE = "naive_first_offer_to_"
_FAIR = "recommended_first_offer_to_"


class _Run(Protocol):
    """What preemption left: clients with what they hold, and who was killed."""

    @property
    def forest(self) -> Forest: ...

    @property
    def killed(self) -> Sequence[_Killed]: ...


class _Killed(Protocol):
    @property
    def started(self) -> int: ...


def run_preemption(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:  # noqa: ARG001
    """The holders have started; then everybody wants tasks, and the starving are helped.

    An amount told by a single number is of the first resource.
    """
    if policy != "min-sat-entitlement":
        raise Unreadable(f"policy {shortened(policy)} does not preempt")
    if vector.guarantee:
        raise Unreadable("mode preemption does not know guarantees")
    _check_words(vector, _HOLDS)
    yield (
        REFERENCE,
        FactsOnly(_preemption_facts(lambda tolerance: _by_definition(vector, tolerance))),
    )
    if _on_engine(vector, DEFAULT_TOLERANCE) is not None:
        yield ENGINE, FactsOnly(_preemption_facts(lambda tolerance: _on_engine(vector, tolerance)))


def _preemption_facts(preempt: Callable[[Fraction], _Run | None]) -> list[Fact]:
    runs: dict[Fraction, _Run] = {}

    def at(tolerance: Fraction) -> _Run:
        if tolerance > 1:
            raise Unreadable("a tolerance is above 1")
        if tolerance not in runs:
            run = preempt(tolerance)
            assert run is not None, "the engine could hold it a moment ago"
            runs[tolerance] = run
        return runs[tolerance]

    def named(text: str) -> _Run:
        return at(positive(text, "a tolerance"))

    def starts(wanted: object, run: _Run) -> Got:
        # As many as are told of; if none are, there must have been none.
        length = len(wanted) if isinstance(wanted, list) and wanted else None
        return [Fraction(task.started) for task in run.killed[:length]]

    return [
        ("end", lambda wanted: _held(wanted, at(DEFAULT_TOLERANCE))),
        ("after_tolerance_(.+)", lambda wanted, text: _held(wanted, named(text))),
        ("preemptions", lambda _: len(at(DEFAULT_TOLERANCE).killed)),
        ("preemptions_(.+)", lambda _, text: len(named(text).killed)),
        ("first_victim_starts", lambda wanted: starts(wanted, at(DEFAULT_TOLERANCE))),
        ("first_victim_starts_(.+)", lambda wanted, text: starts(wanted, named(text))),
    ]


def _by_definition(vector: Vector, tolerance: Fraction) -> Preemption:
    """Holders start what they have, one task each moment; then all others come."""
    forest = forest_of(vector)
    run = Preemption(forest, Machines(vector.machines()), tolerance)
    holders, wanting = _roles_in_the_play(vector, forest)
    if vector.initial:
        for path, count in vector.initial.items():
            run.start(forest.by_path[path], count)
    else:
        holders[0].is_paused = False
        run.serve()
    for client in wanting:
        client.is_paused = False
    run.settle()
    return run


def _on_engine(vector: Vector, tolerance: Fraction) -> EngineCluster | None:
    """The same by the engine; None if it cannot hold the numbers."""
    forest = forest_of(vector)
    holders, wanting = _roles_in_the_play(vector, forest)
    rules = Rules(hold_s=0.0, scarce=frozenset())
    try:
        cluster = EngineCluster(forest, vector.machines(), Unrotated(), rules)
    except InvalidRequest:
        return None
    if cluster.allocator.total != cluster.terms.scalars(vector.capacity):
        return None
    if vector.initial:
        machines = Machines(vector.machines())
        for path, count in vector.initial.items():
            client = forest.by_path[path]
            for _ in range(count):
                index = machines.first_fit(demand_of(client))
                if index is None:
                    return None
                machines.take(index, demand_of(client))
                cluster.found(client, AgentId(f"a{index}"))
    else:
        holders[0].is_paused = False
        cluster.tell_demand(holders[0])
        cluster.fill()
    for client in wanting:
        client.is_paused = False
        cluster.tell_demand(client)
    cluster.preempt(tolerance)
    cluster.allocator.check()
    return cluster


def _roles_in_the_play(vector: Vector, forest: Forest) -> tuple[list[Pool], list[Pool]]:
    """Who has tasks before, and who wants some after; all are paused."""
    clients = list(forest.root.clients())
    wanting = [client for client in clients if client.wants]
    for client in clients:
        client.is_paused = True
    if not vector.initial:
        return [forest.by_path[_holder(vector)]], wanting
    # Who has begun wants nothing beyond that, unless its backlog says so.
    return [forest.by_path[path] for path in vector.initial], [
        client
        for client in wanting
        if client.path not in vector.initial or client.path in vector.backlog
    ]


def _check_words(vector: Vector, known: re.Pattern[str]) -> None:
    for line in vector.events:
        if not known.search(line):
            raise Unreadable(f"event not understood: {shortened(repr(line))}")


def _holder(vector: Vector) -> str:
    """Who has everything, as the words of the vector tell."""
    for text in (*vector.events, vector.source, vector.note):
        match = _HOLDS.search(text)
        if match and match[1] in vector.clients:
            return match[1]
    raise Unreadable("`initial` is missing, and no words say 'CLIENT holds everything'")


def _held(wanted: object, run: _Run) -> Got:
    """What clients hold; of the first resource if a single number is wanted."""
    amounts = {client.path: list(client.used) for client in run.forest.root.clients()}
    in_full = isinstance(wanted, dict) and any(isinstance(item, list) for item in wanted.values())
    return {path: used if in_full else used[0] for path, used in amounts.items()}


def run_offers(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:  # noqa: ARG001
    """One client that is willing, named by the expected keys, among clients that decline."""
    if policy != "offers":
        raise Unreadable(f"policy {shortened(policy)} is not known in mode offers")
    _check_words(vector, _REFUSE)

    def naive(_: object, client: str) -> Got:
        return first_offer(vector, _known(vector, client), is_fair=False)

    def fair(_: object, client: str) -> Got:
        return first_offer(vector, _known(vector, client), is_fair=True)

    def engine(_: object, client: str) -> Got:
        try:
            return first_offer_of_engine(vector, _known(vector, client))
        except InvalidRequest:
            return fair(_, client)

    patterns = (f"{_NAIVE}(.+)", f"{_FAIR}(.+)_cycle")
    yield REFERENCE, FactsOnly(list(zip(patterns, (naive, fair), strict=True)))
    yield ENGINE, FactsOnly(list(zip(patterns, (naive, engine), strict=True)))


def _known(vector: Vector, client: str) -> str:
    if client not in vector.clients:
        raise Unreadable(f"expected names {shortened(client)}, which is not a client")
    return client


def first_offer(vector: Vector, willing: str, *, is_fair: bool) -> int | None:
    """The cycle, from 0, in which the willing client is first asked; None if never."""
    forest = forest_of(vector)
    machines = Machines(vector.machines())
    for path, count in running_before(vector, forest, machines, willing).items():
        forest.start(forest.by_path[path], count)
    loop = OfferLoop(forest, machines, is_fair=is_fair, refuse=refusal_of(vector))
    client = forest.by_path[willing]
    loop.run(client, _cycles(vector))
    return loop.first_offer.get(client)


def first_offer_of_engine(vector: Vector, willing: str) -> int | None:
    """The same by the engine's allocator, which offers whole remainders.

    Raises:
        InvalidRequest: if the engine cannot hold the numbers.
    """
    forest = forest_of(vector)
    machines = Machines(vector.machines())
    before = running_before(vector, forest, machines, willing)
    decliners = EngineDecliners(forest, vector.machines(), vector.capacity)
    for path, count in before.items():
        decliners.charge_elsewhere(forest.by_path[path], count)
    return decliners.run(forest.by_path[willing], _cycles(vector), refusal_of(vector))


def _cycles(vector: Vector) -> int:
    return max(_CYCLES, 20 * len(vector.clients))


def running_before(
    vector: Vector, forest: Forest, machines: Machines, willing: str
) -> dict[str, int]:
    """Tasks before the first offer: `initial`, or what the machines lack of `capacity`.

    The latter are the willing client's.
    """
    if vector.initial:
        return dict(vector.initial)
    lacking = [total - left for total, left in zip(vector.capacity, machines.left(), strict=True)]
    if not any(lacking):
        return {}
    count = whole_tasks(forest.by_path[willing], lacking) if min(lacking) >= 0 else None
    if count is None:
        held = demand_of(forest.by_path[willing])
        raise Unreadable(
            f"`capacity` is more than all machines by {[str(a) for a in lacking]}, which is no"
            f" number of tasks of {shortened(willing)}, {[str(a) for a in held]} each"
        )
    return {willing: count}


def refusal_of(vector: Vector) -> Fraction:
    """For how many cycles a decline counts, as the words tell: "refuse 5 s"; 5 if they do not."""
    for text in (*vector.events, vector.note, vector.source):
        match = _REFUSE.search(text)
        if match:
            return Fraction(match[1])
    return DEFAULT_REFUSE
