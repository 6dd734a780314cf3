"""`croupier simulate vectors`: run vectors, and compare the outcome with the expected one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from croupier.lab.solvers.continuous import Undefined
from croupier.lab.vectors import fifo_mode, modes, offers_mode, preemption_mode, static_modes
from croupier.lab.vectors.document import Malformed, name_of, read_document, read_vector
from croupier.lab.vectors.facts import Fact, Mismatch, compare, look_up, text_of
from croupier.lab.vectors.vector import Unreadable, Vector, shortened
from croupier.model.errors import InvalidRequest

_MAX_LINES = 20
Runners = Mapping[str, modes.Run]

RUNNERS: Final[Runners] = {
    "continuous": modes.run_continuous,
    "schedule": modes.run_discrete,
    "discrete": modes.run_discrete,
    "slots": modes.run_slots,
    "fifo": fifo_mode.run_fifo,
    "entitlement": static_modes.run_entitlement,
    "events": modes.run_events,
    "preemption": preemption_mode.run_preemption,
    "order": static_modes.run_order,
    "offers": offers_mode.run_offers,
    "hints": modes.run_hints,
    "envy": modes.run_envy,
}
_STATE: Final = "weights backlog guarantee active initial"
# The fields that a mode uses, besides those that all modes use.
_FIELDS: Final = {
    "continuous": "weights backlog active",
    "schedule": f"{_STATE} placement",
    "discrete": f"{_STATE} placement",
    "slots": "weights backlog active",
    "fifo": "weights backlog active placement",
    "entitlement": "weights backlog active initial usage hints",
    "events": f"{_STATE} placement events",
    "preemption": f"{_STATE} events",
    "order": f"{_STATE} usage",
    "offers": f"{_STATE} events",
    "hints": f"{_STATE} hints",
    "envy": "weights",
}


# Every field that only some modes use.
_MODE_FIELDS: Final = sorted({name for names in _FIELDS.values() for name in names.split()})


@dataclass(frozen=True, slots=True)
class CheckedVector:
    """The result of one vector; `failures` is empty if it passed."""

    name: str
    failures: tuple[Mismatch, ...]

    @property
    def passed(self) -> bool:
        """Whether everything was as expected."""
        return not self.failures


def check_text(text: str, runners: Runners = RUNNERS) -> Iterator[CheckedVector]:
    """Check a file's vectors one by one.

    Raises:
        Malformed: before the first result, if the text does not follow the schema.
    """
    found = read_document(text)
    readable: dict[int, Vector] = {}
    wrong: dict[int, str] = {}
    for index, entry in enumerate(found):
        try:
            readable[index] = read_vector(entry)
        except Unreadable as error:
            wrong[index] = str(error)
    return _check_all(found, readable, wrong, runners)


def _check_all(
    found: Sequence[object],
    readable: Mapping[int, Vector],
    wrong: Mapping[int, str],
    runners: Runners,
) -> Iterator[CheckedVector]:
    seen: set[str] = set()
    for index, entry in enumerate(found):
        name = name_of(entry, index)
        if index in wrong:
            yield _refused(name, wrong[index])
        elif readable[index].name in seen:
            yield _refused(name, "another vector has this name")
        else:
            yield check_vector(readable[index], list(readable.values()), runners)
        if index in readable:
            seen.add(readable[index].name)


def check_vector(
    vector: Vector, others: Sequence[Vector], runners: Runners = RUNNERS
) -> CheckedVector:
    """Run one vector under each of its policies; `others` are all vectors of its file."""
    try:
        failures = tuple(_check(vector, others, runners))
    except (Unreadable, Undefined) as error:
        return _refused(vector.name, str(error))
    except AssertionError as error:
        return _refused(vector.name, f"an invariant of the engine is broken: {error}")
    return CheckedVector(vector.name, failures)


def _check(vector: Vector, others: Sequence[Vector], runners: Runners) -> Iterator[Mismatch]:
    run = runners.get(vector.mode)
    if run is None:
        raise Unreadable(f"mode {shortened(repr(vector.mode))} is not known")
    _check_fields(vector)
    for policy in (vector.policy, *vector.also):
        for label, facts in run(vector, policy, others):
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


def _check_fields(vector: Vector) -> None:
    """Refuse a field that the mode would ignore."""
    used = _FIELDS[vector.mode].split()
    unused = [name for name in _MODE_FIELDS if name not in used and getattr(vector, name)]
    if unused:
        raise Unreadable(f"mode {vector.mode} does not use `{unused[0]}`")


def _refused(name: str, why: str) -> CheckedVector:
    return CheckedVector(name, (Mismatch("", "a vector that can be run", why),))


def check_file(path: Path) -> int:
    """Print each failure and, last, `N passed, N failed`; return the exit code.

    Raises:
        InvalidRequest: if the file cannot be read.
    """
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
