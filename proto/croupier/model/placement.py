"""Where the master may place submitted tasks."""

from __future__ import annotations

from dataclasses import dataclass

from croupier.model.attributes import Constraint, check_constraints
from croupier.model.demand import MAX_PROGRAMS
from croupier.model.errors import InvalidRequest

MAX_PER_AGENT = 10**6


@dataclass(frozen=True, slots=True)
class Placement:
    """Agents on which a submitted task may run.

    Attributes:
        constraints: all must hold on the agent.
        max_per_agent: the agent runs fewer tasks of the framework than this; None: no bound.
    """

    constraints: tuple[Constraint, ...] = ()
    max_per_agent: int | None = None

    def check(self) -> None:
        """Check the placement.

        Raises:
            InvalidRequest: if no agent can ever pass it, or its patterns are too complex.
        """
        check_constraints(self.constraints)
        if sum(each.pattern.size for each in self.constraints if each.pattern) > MAX_PROGRAMS:
            raise InvalidRequest("the patterns of all constraints are too complex together")
        most = self.max_per_agent
        if most is not None and not 1 <= most <= MAX_PER_AGENT:
            raise InvalidRequest(
                f"the maximum of tasks per agent must be between 1 and {MAX_PER_AGENT}, not {most}"
            )


ANYWHERE = Placement()
