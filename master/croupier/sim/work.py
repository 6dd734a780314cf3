"""Work: tasks, the resources that they request, and those that they use."""

from __future__ import annotations

from dataclasses import dataclass, field

from croupier.model.attributes import Constraint
from croupier.model.demand import Demand
from croupier.model.resources import Resources
from croupier.model.task import TaskState
from croupier.sim.machine import Size


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """The shape of tasks: the resources that they request, and those that they use.

    Two shapes are never equal: tasks to be counted together share one.
    """

    ask: Resources
    use: Size
    constraints: tuple[Constraint, ...] = ()

    def demand(self, count: int | None, max_per_offer: int | None = None) -> Demand:
        """Return the demand for `count` tasks."""
        return Demand(self.ask, count, self.constraints, max_per_offer=max_per_offer)


@dataclass(slots=True, eq=False)
class Work:
    """One task to run.

    Attributes:
        seconds: its duration on a node that is not overcommitted.
        failures: the number of FAILED attempts before it ends FINISHED.
        submitted_at, started_at: virtual seconds; `started_at` is None before the launch.
        job: for the submitter's own use.
    """

    shape: Shape
    seconds: float
    failures: int = 0
    submitted_at: float = 0.0
    started_at: float | None = None
    job: object = field(default=None, repr=False)

    def end(self) -> TaskState:
        """End one attempt, and return the state in which it ends."""
        if not self.failures:
            return TaskState.FINISHED
        self.failures -= 1
        return TaskState.FAILED
