"""Modes in which somebody must wait for others: preemption, and offers that are declined."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from croupier.sim.solvers.filling import Machines, demand_of
from croupier.sim.solvers.offers import OfferLoop, whole_tasks
from croupier.sim.solvers.pools import Forest
from croupier.sim.solvers.preemption import Preemption
from croupier.sim.vectors.facts import Fact, Got
from croupier.sim.vectors.forests import REFERENCE, forest_of
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


def run_preemption(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:  # noqa: ARG001
    """The holders have started; then everybody wants tasks, and the starving are helped.

    An amount told by a single number is of the first resource.
    """
    if policy != "min-sat-entitlement":
        raise Unreadable(f"policy {shortened(policy)} does not preempt")
    if vector.guarantee:
        raise Unreadable("mode preemption does not know guarantees")
    _check_words(vector, _HOLDS)
    runs: dict[Fraction, Preemption] = {}

    def at(tolerance: Fraction) -> Preemption:
        if tolerance not in runs:
            runs[tolerance] = _preempt(vector, tolerance)
        return runs[tolerance]

    def named(text: str) -> Preemption:
        return at(positive(text, "a tolerance"))

    def starts(wanted: object, run: Preemption) -> Got:
        # As many as are told of; if none are, there must have been none.
        length = len(wanted) if isinstance(wanted, list) and wanted else None
        return [Fraction(task.started) for task in run.killed[:length]]

    facts: list[Fact] = [
        ("end", lambda wanted: _held(wanted, at(DEFAULT_TOLERANCE))),
        ("after_tolerance_(.+)", lambda wanted, text: _held(wanted, named(text))),
        ("preemptions", lambda _: len(at(DEFAULT_TOLERANCE).killed)),
        ("preemptions_(.+)", lambda _, text: len(named(text).killed)),
        ("first_victim_starts", lambda wanted: starts(wanted, at(DEFAULT_TOLERANCE))),
        ("first_victim_starts_(.+)", lambda wanted, text: starts(wanted, named(text))),
    ]
    yield REFERENCE, FactsOnly(facts)


def _preempt(vector: Vector, tolerance: Fraction) -> Preemption:
    """Holders start what they have, one task each moment; then all others come."""
    forest = forest_of(vector)
    run = Preemption(forest, Machines(vector.machines()), tolerance)
    clients = list(forest.root.clients())
    wanting = [client for client in clients if client.wants]
    for client in clients:
        client.is_paused = True
    if vector.initial:
        for path, count in vector.initial.items():
            run.start(forest.by_path[path], count)
        # Who has begun wants nothing beyond that, unless its backlog says so.
        wanting = [
            client
            for client in wanting
            if client.path not in vector.initial or client.path in vector.backlog
        ]
    else:
        holder = forest.by_path[_holder(vector)]
        holder.is_paused = False
        run.serve()
    for client in wanting:
        client.is_paused = False
    run.settle()
    return run


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


def _held(wanted: object, run: Preemption) -> Got:
    """What clients hold; of the first resource if a single number is wanted."""
    amounts = {client.path: list(client.used) for client in run.forest.root.clients()}
    in_full = isinstance(wanted, dict) and any(isinstance(item, list) for item in wanted.values())
    return {path: used if in_full else used[0] for path, used in amounts.items()}


def run_offers(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:  # noqa: ARG001
    """One client that is willing, named by the expected keys, among clients that decline."""
    if policy != "offers":
        raise Unreadable(f"policy {shortened(policy)} is not known in mode offers")
    _check_words(vector, _REFUSE)

    def first(client: str, *, is_fair: bool) -> Got:
        if client not in vector.clients:
            raise Unreadable(f"expected names {shortened(client)}, which is not a client")
        return first_offer(vector, client, is_fair=is_fair)

    facts: list[Fact] = [
        (f"{_NAIVE}(.+)", lambda _, client: first(client, is_fair=False)),
        (f"{_FAIR}(.+)_cycle", lambda _, client: first(client, is_fair=True)),
    ]
    yield REFERENCE, FactsOnly(facts)


def first_offer(vector: Vector, willing: str, *, is_fair: bool) -> int | None:
    """The cycle, from 0, in which the willing client is first asked; None if never."""
    forest = forest_of(vector)
    machines = Machines(vector.machines())
    for path, count in running_before(vector, forest, machines, willing).items():
        forest.start(forest.by_path[path], count)
    loop = OfferLoop(forest, machines, is_fair=is_fair, refuse=refusal_of(vector))
    client = forest.by_path[willing]
    loop.run(client, max(_CYCLES, 20 * len(vector.clients)))
    return loop.first_offer.get(client)


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
