"""`croupier simulate vectors`: run vectors, and compare the outcome with the expected one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from croupier.lab.solvers.continuous import Undefined
from croupier.lab.vectors import fifo_mode, modes, offers_mode, preemption_mode, static_modes
from croupier.lab.vectors.document import Malformed, name_of, read_document, read_vector
from croupier.lab.vectors.facts import Fact, Mismatch, compare, look_up, text_of
from croupier.lab.vectors.vector import Unreadable, Vector, shortened
from croupier.model.errors import InvalidRequest

_MAX_LINES = 20
_STATE: Final = "weights backlog guarantee active initial"
# Each mode, with the fields that it uses besides those that all modes use.
MODES: Final[Mapping[str, tuple[modes.Run, str]]] = {
    "continuous": (modes.run_continuous, "weights backlog active"),
    "schedule": (modes.run_discrete, f"{_STATE} placement"),
    "discrete": (modes.run_discrete, f"{_STATE} placement"),
    "slots": (modes.run_slots, "weights backlog active"),
    "fifo": (fifo_mode.run_fifo, "weights backlog active placement"),
    "entitlement": (static_modes.run_entitlement, "weights backlog active initial usage hints"),
    "events": (modes.run_events, f"{_STATE} placement events"),
    "preemption": (preemption_mode.run_preemption, f"{_STATE} events"),
    "order": (static_modes.run_order, f"{_STATE} usage"),
    "offers": (offers_mode.run_offers, f"{_STATE} events"),
    "hints": (modes.run_hints, f"{_STATE} hints"),
    "envy": (static_modes.run_envy, "weights"),
}
# Every field that only some modes use.
_MODE_FIELDS: Final = sorted({name for _, names in MODES.values() for name in names.split()})


@dataclass(frozen=True, slots=True)
class CheckedVector:
    """The result of one vector; `failures` is empty if it passed."""

    name: str
    failures: tuple[Mismatch, ...]

    @property
    def passed(self) -> bool:
        """Whether everything was as expected."""
        return not self.failures


def check_text(text: str) -> Iterator[CheckedVector]:
    """Check a file's vectors one by one; raises Malformed at first if it breaks the schema."""
    entries = read_document(text)
    found = list(map(_readable, entries))
    vectors = [vector for vector in found if isinstance(vector, Vector)]
    seen: set[str] = set()
    for index, vector in enumerate(found):
        if isinstance(vector, Unreadable):
            yield _refused(name_of(entries[index], index), str(vector))
        elif vector.name in seen:
            yield _refused(name_of(entries[index], index), "another vector has this name")
        else:
            seen.add(vector.name)
            yield _check_vector(replace(vector, others=vectors))


def _readable(entry: object) -> Vector | Unreadable:
    try:
        return read_vector(entry)
    except Unreadable as error:
        return error


def _check_vector(vector: Vector) -> CheckedVector:
    """Run one vector under each of its policies."""
    try:
        failures = tuple(_check(vector))
    except (Unreadable, Undefined) as error:
        return _refused(vector.name, str(error))
    except AssertionError as error:
        return _refused(vector.name, f"an invariant of the engine is broken: {error}")
    return CheckedVector(vector.name, failures)


def _check(vector: Vector) -> Iterator[Mismatch]:
    if vector.mode not in MODES:
        raise Unreadable(f"mode {shortened(repr(vector.mode))} is not known")
    run, fields = MODES[vector.mode]
    for name in _MODE_FIELDS:
        if getattr(vector, name) and name not in fields.split():
            raise Unreadable(f"mode {vector.mode} does not use `{name}`")
    for policy in (vector.policy, *vector.also):
        for label, facts in run(vector, policy):
            where = f"{policy}, {label}" if vector.also else label
            yield from _compare(vector, facts, where)


def _compare(vector: Vector, facts: Sequence[Fact], where: str) -> Iterator[Mismatch]:
    for key, wanted in vector.expected.items():
        if wanted == {}:
            yield Mismatch(f"{where}: {shortened(key)}", text_of(wanted), "nothing is expected")
            continue
        try:
            got = look_up(facts, key, wanted)
        except (Unreadable, Undefined) as error:
            yield Mismatch(f"{where}: {shortened(key)}", text_of(wanted), str(error))
        else:
            yield from compare(f"{where}: {shortened(key)}", wanted, got, vector.tolerance)


def _refused(name: str, why: str) -> CheckedVector:
    return CheckedVector(name, (Mismatch("", "a vector that can be run", why),))


def check_file(path: Path) -> int:
    """Print failures, then `N passed, N failed`; return the exit code. Raises InvalidRequest."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        print(f"{path}: not a text in UTF-8")
        return _print_counts(0, 1)
    except OSError as error:
        raise InvalidRequest(f"{path}: {error.strerror or error}") from None
    passed = failed = 0
    try:
        for result in check_text(text):
            passed, failed = passed + result.passed, failed + (not result.passed)
            _print(result)
    except Malformed as error:
        print(f"{path}: {error}")
        return _print_counts(0, 1)
    return _print_counts(passed, failed)


def _print(result: CheckedVector) -> None:
    for mismatch in result.failures[:_MAX_LINES]:
        where = f" {mismatch.where}" if mismatch.where else ""
        print(f"FAIL {result.name}:{where}")
        print(f"     expected {mismatch.expected}")
        print(f"     got      {mismatch.got}", flush=True)
    if len(result.failures) > _MAX_LINES:
        print(f"     and {len(result.failures) - _MAX_LINES} more")


def _print_counts(passed: int, failed: int) -> int:
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0
