"""Flags of a master for preemption."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isfinite

from cyclopts import Parameter

from croupier.master.allocator.starvation import PreemptionRules
from croupier.model.errors import InvalidRequest
from croupier.process.cli import Seconds


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionFlags:
    """When a master preempts tasks, and how.

    Raises:
        InvalidRequest: if a value is out of bounds.
    """

    preemption: bool = False
    """Preempt tasks on behalf of starved frameworks. Settings of a role override it."""

    preemption_tolerance: float = 0.8
    """Fraction of its fair share below which a framework starves."""

    starvation_timeout: Seconds = 60.0
    """Time that a framework must starve before the master preempts for it, such as 60s."""

    guarantee_timeout: Seconds = 15.0
    """Time that a role must be below its guarantee before the master preempts for it, such as
    15s."""

    preemption_grace: Seconds = 30.0
    """Time that a framework has to end a task that the master preempts, such as 30s."""

    preemption_min_age: Seconds = 0.0
    """Age below which tasks are not preempted, such as 1m."""

    def __post_init__(self) -> None:
        self.rules()

    def rules(self) -> PreemptionRules:
        """Return the rules of preemption for the allocator."""
        if not isfinite(self.preemption_tolerance):
            raise InvalidRequest("--preemption-tolerance must be a number")
        return PreemptionRules(
            is_on=self.preemption,
            tolerance=Fraction(self.preemption_tolerance).limit_denominator(1000),
            fair_timeout_s=self.starvation_timeout,
            guarantee_timeout_s=self.guarantee_timeout,
            grace_s=self.preemption_grace,
            min_age_s=self.preemption_min_age,
        )
