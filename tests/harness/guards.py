"""How many checks of a property said something: told at the end of the test run.

A property that holds under a condition is checked only where the condition does; a test that
never meets it proves nothing. So each counts what it checked, and asks for a least number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# Checks by property, in order of first use, for the summary.
COUNTS: dict[str, int] = {}


@dataclass(frozen=True)
class Checked:
    """One check: whether its condition held, whether the property did, and of what it spoke."""

    applies: bool
    holds: bool
    about: object = None


def assert_guarded(name: str, checks: Iterable[Checked], least: int) -> None:
    """Every check whose condition holds must hold, and there must be at least so many."""
    count = 0
    for check in checks:
        if check.applies:
            count += 1
            assert check.holds, f"{name}: {check.about}"
    COUNTS[name] = COUNTS.get(name, 0) + count
    assert count >= least, f"{name}: only {count} checks said anything, of {least}"


def violations(checks: Iterable[Checked]) -> int:
    """How many checks whose condition holds do not hold."""
    return sum(check.applies and not check.holds for check in checks)
