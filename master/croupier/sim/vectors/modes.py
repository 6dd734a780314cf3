"""How a vector of each mode is run; what comes out is held against `expected` elsewhere.

Rule: what the engine can do is done twice, by the engine and by a definition that shares no
code with it, and both must come out as expected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from croupier.sim.solvers.continuous import User
from croupier.sim.solvers.filling import Filling
from croupier.sim.solvers.market import ceei
from croupier.sim.solvers.pools import Forest
from croupier.sim.solvers.rules import MinSatisfactionByUse, Rule
from croupier.sim.solvers.slots import fill_slots
from croupier.sim.vectors.facts import Fact, Got, Outcome, look_up
from croupier.sim.vectors.forests import (
    ALLOCATOR,
    ENGINE,
    REFERENCE,
    allocator_of,
    each_way,
    engine_rule,
    filling_of,
    forest_of,
)
from croupier.sim.vectors.numbers import Unreadable, not_negative, shortened
from croupier.sim.vectors.outcome import TaskOutcome, continuous_tasks
from croupier.sim.vectors.scripted_events import Fill, Finish, read_events
from croupier.sim.vectors.vector import Vector

Runs = Iterator[tuple[str, Outcome]]
Run = Callable[[Vector, str, Sequence[Vector]], Runs]


@dataclass(frozen=True, slots=True)
class FactsOnly:
    """An outcome without tasks."""

    facts: Sequence[Fact]

    def fact(self, key: str, wanted: object) -> Got:
        """See `Outcome`."""
        return look_up(self.facts, key, wanted)


def run_continuous(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:
    """Tasks that can be cut at will."""
    if not vector.clients or not vector.capacity:
        raise Unreadable("`demands` or `capacity` is missing")
    tasks = _market_tasks(vector) if policy == "ceei" else continuous_tasks(vector, policy)
    yield REFERENCE, TaskOutcome(vector, tasks, others)


def _market_tasks(vector: Vector) -> dict[str, Fraction]:
    if vector.pools():
        raise Unreadable("a market has no pools")
    users = [
        User(
            vector.demands[client],
            vector.weight(client),
            vector.backlog.get(client) if vector.is_active(client) else Fraction(0),
        )
        for client in vector.clients
    ]
    return dict(zip(vector.clients, ceei(vector.capacity, users), strict=True))


def run_discrete(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:
    """Whole tasks until nobody fits, or machine by machine without skipping."""
    for label, filling, rule in each_way(vector, policy):
        _fill(filling, rule, policy)
        yield label, _outcome(vector, filling, others)
    cluster = allocator_of(vector, policy)
    if cluster is not None:
        cluster.fill()
        cluster.allocator.check()
        schedule = [client.path for client in cluster.schedule]
        yield ALLOCATOR, TaskOutcome(vector, _counts(cluster.forest), others, schedule)


def run_events(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:
    """A fill, and what happens after it."""
    for label, filling, rule in each_way(vector, policy):
        after: list[dict[str, Got]] = []
        for event in read_events(vector.events, vector.clients):
            if isinstance(event, Fill):
                _fill(filling, rule, policy)
            else:
                _finish(filling, rule, policy, event)
            after.append(dict(_counts(filling.forest)))
        facts: list[Fact] = [
            ("after_fill", lambda _, after=after: after[0]),
            ("end", lambda _, after=after: after[-1]),
        ]
        yield label, _outcome(vector, filling, others, facts)


def _fill(filling: Filling, rule: Rule, policy: str) -> None:
    if policy == "drf-neverskip":
        filling.fill_without_skipping(rule)
    else:
        filling.fill(rule)


def _finish(filling: Filling, rule: Rule, policy: str, event: Finish) -> None:
    client = filling.forest.by_path[event.client]
    for _ in range(event.times):
        count = client.tasks if event.count is None else event.count
        if client.tasks < max(count, 1):
            if not event.may_skip:
                raise Unreadable(f"an event ends tasks of {shortened(client.path)}; none runs")
            continue
        for _ in range(count):
            filling.finish(client)
        if event.refills:
            _fill(filling, rule, policy)


def _counts(forest: Forest) -> dict[str, Fraction]:
    return {client.path: Fraction(client.tasks) for client in forest.root.clients()}


def _outcome(
    vector: Vector, filling: Filling, others: Sequence[Vector], more: Sequence[Fact] = ()
) -> TaskOutcome:
    schedule = [client.path for client in filling.schedule]
    return TaskOutcome(vector, _counts(filling.forest), others, schedule, more)


def run_hints(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:
    """What false declarations bring, if they are believed and if use is looked at instead."""
    if policy != "min-sat-entitlement":
        raise Unreadable(f"policy {shortened(policy)} does not look at what is declared")

    def tasks_under(filling: Filling, rule: Rule) -> dict[str, Got]:
        filling.fill(rule)
        return dict(_counts(filling.forest))

    believed = filling_of(vector)
    trusting = tasks_under(believed, MinSatisfactionByUse(trusts_declared=True))
    for label, filling, rule in each_way(vector, policy):
        by_use = tasks_under(filling, rule)
        facts: list[Fact] = [
            ("trust_hints", lambda _: trusting),
            ("usage_based", lambda _, by_use=by_use: by_use),
        ]
        yield label, _outcome(vector, filling, others, facts)


def run_slots(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:
    """A task takes a slot, whatever it needs."""
    if policy != "slots" or vector.pools():
        raise Unreadable("mode slots is for policy slots, without pools")
    if not vector.nodes or any(group.slots is None for group in vector.nodes):
        raise Unreadable("`nodes` does not say how many slots each has")
    slots = sum(group.count * (group.slots or 0) for group in vector.nodes)
    forest = forest_of(vector)
    given = fill_slots(forest, slots)
    yield REFERENCE, TaskOutcome(vector, _counts(forest), others, [c.path for c in given])
    forest = forest_of(vector)
    engine = engine_rule(vector, policy, forest)
    if engine is not None:
        chosen = []
        for _ in range(slots):
            client = engine.pick(forest, lambda _: True)
            if client is None:
                break
            forest.start(client)
            chosen.append(client.path)
        yield ENGINE, TaskOutcome(vector, _counts(forest), others, chosen)


def run_envy(vector: Vector, policy: str, others: Sequence[Vector]) -> Runs:  # noqa: ARG001
    """Who would rather have another's bundle: strictly more of everything that he wants."""
    if policy != "property":
        raise Unreadable(f"policy {shortened(policy)} is not known in mode envy")
    bundles = vector.expected.get("bundles")
    if not isinstance(bundles, dict) or not bundles:
        raise Unreadable("mode envy needs `expected.bundles`: what each client has")
    held = {client: _bundle(amounts, vector) for client, amounts in bundles.items()}
    found = [[one, other] for one in held for other in held if _envies(vector, one, other, held)]

    def envies(wanted: Got) -> Got:
        # The order of pairs says nothing.
        is_same = isinstance(wanted, list) and sorted(map(str, wanted)) == sorted(map(str, found))
        return wanted if is_same else found

    facts: list[Fact] = [("bundles", lambda _: held), ("envies", envies)]
    yield REFERENCE, FactsOnly(facts)


def _bundle(amounts: object, vector: Vector) -> list[Fraction]:
    if not isinstance(amounts, list) or len(amounts) != len(vector.resources):
        raise Unreadable("a bundle is not a list of numbers, one per resource")
    return [not_negative(amount, "a bundle") for amount in amounts]


def _envies(vector: Vector, one: str, other: str, held: Mapping[str, Sequence[Fraction]]) -> bool:
    if one == other:
        return False
    demand = vector.demands.get(one)
    mine, theirs = vector.weight(one), vector.weight(other)
    wanted = [r for r in range(len(vector.resources)) if demand is None or demand[r] > 0]
    return bool(wanted) and all(held[other][r] * mine[r] / theirs[r] > held[one][r] for r in wanted)
