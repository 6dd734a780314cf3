"""Counts of guarded checks, printed at the end of the test run.

A property that holds under a condition is checked only where the condition holds. A test that never
meets the condition proves nothing, so each counts its checks and requires a minimum.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# Checks by property, in order of first use, for the summary.
COUNTS: dict[str, int] = {}


@dataclass(frozen=True)
class Checked:
    """One check: whether its condition held, whether the property did, and its subject."""

    applies: bool
    holds: bool
    about: object = None


def assert_guarded(name: str, checks: Iterable[Checked], least: int) -> None:
    """Assert that every check whose condition holds succeeds, and that there are enough."""
    count = 0
    for check in checks:
        if check.applies:
            count += 1
            assert check.holds, f"{name}: {check.about}"
    COUNTS[name] = COUNTS.get(name, 0) + count
    assert count >= least, f"{name}: only {count} checks met their condition, of {least}"


def violations(checks: Iterable[Checked]) -> int:
    """Return the number of failed checks whose condition holds."""
    return sum(check.applies and not check.holds for check in checks)
