"""Runners of vectors, one per mode. `check` compares the outcome with `expected`.

Rule: the engine answers if it has the policy. It has no divisible tasks, CEEI or H-DRF: these are
computed by their definitions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from croupier.lab.engine_rule import EngineRule
from croupier.lab.policies import Unrotated
from croupier.lab.solvers.filling import Filling, Rule
from croupier.lab.solvers.market import ceei
from croupier.lab.solvers.pools import Forest
from croupier.lab.vectors import forests
from croupier.lab.vectors.facts import Fact, Got
from croupier.lab.vectors.outcome import TaskOutcome, continuous_tasks, users_of
from croupier.lab.vectors.vector import Unreadable, Vector, shortened

FILL = "fill to quiescence"
_MAX_TIMES = 100_000
_COUNTS = {"one": 1, "a": 1, "two": 2, "three": 3, "all": None}
_FINISH = re.compile(
    r"(?:repeat (?P<times>\d{1,9})x: ?)?"
    r"(?P<count>one|a|two|three|all|\d{1,9}) tasks? of (?P<client>.+?) finish(?:es)?"
    r"(?P<skip> \(skip if none runs\))?"
    r"(?P<again>, (?:its|their) resources are re-?assigned by the policy to quiescence)?\.?"
)


@dataclass(frozen=True, slots=True)
class Finish:
    """Tasks of a client end, `times` over.

    Attributes:
        count: the number of tasks each time; None is all that run.
        may_skip: the event is ignored if fewer tasks run.
        refills: the policy allocates the freed resources until nothing fits.
    """

    client: str
    times: int
    count: int | None
    may_skip: bool
    refills: bool


@dataclass(frozen=True, slots=True)
class Fill:
    """The policy allocates all free resources until nothing fits."""


def read_events(lines: Sequence[str], clients: Sequence[str]) -> list[Fill | Finish]:
    """Return the events in order, a first fill included; raises Unreadable for malformed lines."""
    events = [_read(line.strip(), clients) for line in lines]
    return events if events and isinstance(events[0], Fill) else [Fill(), *events]


def _read(line: str, clients: Sequence[str]) -> Fill | Finish:
    if line.removesuffix(".") == FILL:
        return Fill()
    match = _FINISH.fullmatch(line)
    if match is None:
        raise Unreadable(
            f"event not understood: {shortened(repr(line))} (understood: {FILL!r}, 'repeat Nx: one"
            " task of CLIENT finishes (skip if none runs), its resources are re-assigned by the"
            " policy to quiescence')"
        )
    if match["client"] not in clients:
        raise Unreadable(f"an event names {shortened(match['client'])}, which is not a client")
    times = int(match["times"] or 1)
    if times > _MAX_TIMES:
        raise Unreadable(f"an event is repeated over {_MAX_TIMES} times")
    count = match["count"]
    return Finish(
        client=match["client"],
        times=times,
        count=int(count) if count.isdecimal() else _COUNTS[count],
        may_skip=match["skip"] is not None,
        refills=match["again"] is not None,
    )


Runs = Iterator[tuple[str, Sequence[Fact]]]
Run = Callable[[Vector, str], Runs]


def run_continuous(vector: Vector, policy: str) -> Runs:
    """Share the cluster among divisible tasks."""
    if not vector.clients or not vector.capacity:
        raise Unreadable("`demands` or `capacity` is missing")
    tasks = _market_tasks(vector) if policy == "ceei" else continuous_tasks(vector, policy)
    yield forests.REFERENCE, TaskOutcome(vector, tasks).facts


def _market_tasks(vector: Vector) -> dict[str, Fraction]:
    if vector.pools():
        raise Unreadable("a market has no pools")
    return dict(zip(vector.clients, ceei(vector.capacity, users_of(vector)), strict=True))


def run_discrete(vector: Vector, policy: str) -> Runs:
    """Start whole tasks until none fits, or machine by machine without skipping."""
    filling = forests.filling_of(vector)
    label, rule = forests.rule_of(vector, policy, filling)
    fill(filling, rule, policy)
    yield label, outcome_of(vector, filling)
    cluster = forests.one_machine(vector, policy)
    if cluster is not None:
        cluster.fill()
        schedule = [client.path for client in cluster.schedule]
        yield forests.ALLOCATOR, TaskOutcome(vector, counts_of(cluster.forest), schedule).facts


def run_events(vector: Vector, policy: str) -> Runs:
    """Fill the machines, then apply the scripted events."""
    filling = forests.filling_of(vector)
    label, rule = forests.rule_of(vector, policy, filling)
    yield label, outcome_of(vector, filling, play(vector, filling, rule, policy))


def play(vector: Vector, filling: Filling, rule: Rule, policy: str) -> list[Fact]:
    """Apply a vector's events; return the facts that only these have."""
    after: list[dict[str, Got]] = []
    for event in read_events(vector.events, vector.clients):
        if isinstance(event, Fill):
            fill(filling, rule, policy)
        else:
            _finish(filling, rule, policy, event)
        after.append(dict(counts_of(filling.forest)))
    return [("after_fill", lambda _: after[0]), ("end", lambda _: after[-1])]


def fill(filling: Filling, rule: Rule, policy: str) -> None:
    """Start tasks as the policy picks them."""
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
            fill(filling, rule, policy)


def counts_of(forest: Forest) -> dict[str, Fraction]:
    """Return the number of running tasks of each client."""
    return {client.path: Fraction(client.tasks) for client in forest.root.clients()}


def outcome_of(vector: Vector, filling: Filling, more: Sequence[Fact] = ()) -> Sequence[Fact]:
    """Return the facts of the running tasks."""
    schedule = [client.path for client in filling.schedule]
    return TaskOutcome(vector, counts_of(filling.forest), schedule, more).facts


def run_hints(vector: Vector, policy: str) -> Runs:
    """Compare what false declarations gain if the policy trusts them, and if it looks at use."""
    if policy != "min-sat-entitlement":
        raise Unreadable(f"policy {shortened(policy)} does not look at what is declared")
    trusting, by_use = forests.filling_of(vector), forests.filling_of(vector)
    trusting.fill(EngineRule(trusting.forest, Unrotated(), trusts_declared=True))
    label, rule = forests.rule_of(vector, policy, by_use)
    by_use.fill(rule)
    facts: list[Fact] = [
        ("trust_hints", lambda _: dict(counts_of(trusting.forest))),
        ("usage_based", lambda _: dict(counts_of(by_use.forest))),
    ]
    yield label, outcome_of(vector, by_use, facts)


def run_slots(vector: Vector, policy: str) -> Runs:
    """Give each task one slot, regardless of its demand."""
    if policy != "slots" or vector.pools():
        raise Unreadable("mode slots is for policy slots, without pools")
    if not vector.nodes or any(group.slots is None for group in vector.nodes):
        raise Unreadable("`nodes` does not say how many slots each has")
    forest = forests.forest_of(vector)
    engine = forests.engine_rule(vector, policy, forest)
    chosen = []
    for _ in range(sum(group.count * (group.slots or 0) for group in vector.nodes)):
        client = engine.pick(forest, lambda _: True)
        if client is None:
            break
        forest.start(client)
        chosen.append(client.path)
    yield forests.ENGINE, TaskOutcome(vector, counts_of(forest), chosen).facts
