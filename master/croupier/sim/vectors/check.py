"""Run vectors and hold what comes out against what they expect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from croupier.sim.solvers.continuous import Undefined
from croupier.sim.vectors import contention, fifo_mode, modes, static_modes
from croupier.sim.vectors.document import name_of, read_document, read_vector
from croupier.sim.vectors.facts import Mismatch, Outcome, compare, told
from croupier.sim.vectors.numbers import Unreadable, shortened
from croupier.sim.vectors.vector import Vector


@dataclass(frozen=True, slots=True)
class Mode:
    """How a mode is run, and which fields say something to it, besides those of all modes."""

    run: modes.Run
    fields: frozenset[str]


def _mode(run: modes.Run, fields: str) -> Mode:
    return Mode(run, frozenset(fields.split()))


_STATE: Final = "weights backlog guarantee active initial"
MODES: Final[Mapping[str, Mode]] = {
    "continuous": _mode(modes.run_continuous, "weights backlog active"),
    "schedule": _mode(modes.run_discrete, f"{_STATE} placement"),
    "discrete": _mode(modes.run_discrete, f"{_STATE} placement"),
    "slots": _mode(modes.run_slots, "weights backlog active"),
    "fifo": _mode(fifo_mode.run_fifo, "weights backlog active placement"),
    "entitlement": _mode(
        static_modes.run_entitlement, "weights backlog active initial usage hints"
    ),
    "events": _mode(modes.run_events, f"{_STATE} placement events"),
    "preemption": _mode(contention.run_preemption, f"{_STATE} events"),
    "order": _mode(static_modes.run_order, f"{_STATE} usage"),
    "offers": _mode(contention.run_offers, f"{_STATE} events"),
    "hints": _mode(modes.run_hints, f"{_STATE} hints"),
    "envy": _mode(modes.run_envy, "weights"),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one vector; `failures` is empty if all was as expected."""

    name: str
    failures: tuple[Mismatch, ...]

    @property
    def passed(self) -> bool:
        """Whether all was as expected."""
        return not self.failures


def check_text(text: str) -> Iterator[Verdict]:
    """The verdicts on a file's vectors, one by one.

    Raises:
        Malformed: before the first verdict, if the file is not one of the schema.
    """
    found = read_document(text)
    readable: dict[int, Vector] = {}
    wrong: dict[int, str] = {}
    for index, entry in enumerate(found):
        try:
            readable[index] = read_vector(entry)
        except Unreadable as error:
            wrong[index] = str(error)
    return _verdicts(found, readable, wrong)


def _verdicts(
    found: Sequence[object], readable: Mapping[int, Vector], wrong: Mapping[int, str]
) -> Iterator[Verdict]:
    seen: set[str] = set()
    for index, entry in enumerate(found):
        name = name_of(entry, index)
        if index in wrong:
            yield _refused(name, wrong[index])
        elif readable[index].name in seen:
            yield _refused(name, "another vector has this name")
        else:
            yield check_vector(readable[index], list(readable.values()))
        if index in readable:
            seen.add(readable[index].name)


def check_vector(vector: Vector, others: Sequence[Vector] = ()) -> Verdict:
    """Run one vector under each of its policies; `others` are all of its file."""
    try:
        failures = tuple(_check(vector, others))
    except (Unreadable, Undefined) as error:
        return _refused(vector.name, str(error))
    except AssertionError as error:
        return _refused(vector.name, f"an invariant of the engine is broken: {error}")
    return Verdict(vector.name, failures)


def _check(vector: Vector, others: Sequence[Vector]) -> Iterator[Mismatch]:
    mode = MODES.get(vector.mode)
    if mode is None:
        raise Unreadable(f"mode {shortened(repr(vector.mode))} is not known")
    _check_fields(vector, mode)
    for policy in (vector.policy, *vector.also):
        for label, outcome in mode.run(vector, policy, others):
            where = f"{policy}, {label}" if vector.also else label
            yield from _compare(vector, outcome, where)


def _compare(vector: Vector, outcome: Outcome, where: str) -> Iterator[Mismatch]:
    for key, wanted in vector.expected.items():
        if wanted == {}:
            yield Mismatch(f"{where}: {shortened(key)}", told(wanted), "nothing is expected")
            continue
        try:
            got = outcome.fact(key, wanted)
        except (Unreadable, Undefined) as error:
            yield Mismatch(f"{where}: {shortened(key)}", told(wanted), str(error))
        else:
            yield from compare(f"{where}: {shortened(key)}", wanted, got, vector.tolerance)


def _check_fields(vector: Vector, mode: Mode) -> None:
    """A field that says something to no one would be skipped: refuse it."""
    given = {
        "weights": vector.weights,
        "backlog": vector.backlog,
        "guarantee": vector.guarantee,
        "active": vector.active,
        "initial": vector.initial,
        "usage": vector.usage,
        "hints": vector.declared,
        "events": vector.events,
        "placement": vector.placement,
    }
    unused = [name for name, value in given.items() if value and name not in mode.fields]
    if unused:
        raise Unreadable(f"mode {vector.mode} does not know what to do with `{unused[0]}`")


def _refused(name: str, why: str) -> Verdict:
    return Verdict(name, (Mismatch("", "a vector that can be run", why),))
