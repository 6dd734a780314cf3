"""Flags of a master for the number of its series."""

from __future__ import annotations

from dataclasses import dataclass

from cyclopts import Parameter

from croupier.model.errors import InvalidRequest

MOST = 1000


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesFlags:
    """How many roles and frameworks have metrics of their own.

    Raises:
        InvalidRequest: if a value is out of bounds.
    """

    metrics_roles: int = 50
    """Roles with metrics of their own, at most 1000: those with settings, then those with the
    largest shares. All others are summed as the role `other`."""

    metrics_frameworks: int = 20
    """Frameworks with metrics of their own, at most 1000: those with the largest shares, and those
    that wait for resources. All others are summed as the framework `other`."""

    def __post_init__(self) -> None:
        for flag, number in {
            "--metrics-roles": self.metrics_roles,
            "--metrics-frameworks": self.metrics_frameworks,
        }.items():
            if not 0 <= number <= MOST:
                raise InvalidRequest(f"{flag} must be between 0 and {MOST}")
