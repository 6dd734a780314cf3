"""Work: tasks, the resources that they request, and those that they use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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


class Gang:
    """Tasks that are of use only together: each does its work once all of them have started.

    Attributes:
        works: in the order of ranks. A framework submits all of them at once.
        is_whole: whether the master knows the gang, so that it starts all or none. If not, the
            master deals one by one. A task that waits for the others for `PATIENCE_S` fails, and
            waits in the queue again.
    """

    PATIENCE_S = 600.0

    def __init__(self, name: str, works: Sequence[Work], *, is_whole: bool) -> None:
        self.name = name
        self.works = works
        self.is_whole = is_whole
        self._begins: dict[Work, Callable[[], None]] = {}

    @property
    def waiting(self) -> Iterable[Work]:
        """The tasks that have started and wait for the others."""
        return self._begins

    def join(self, work: Work, begin: Callable[[], None]) -> bool:
        """Note that a task has started; if it is the last one, call `begin` of each."""
        self._begins[work] = begin
        if len(self._begins) < len(self.works):
            return False
        begins, self._begins = self._begins, {}
        for each in begins.values():
            each()
        return True

    def leave(self, work: Work) -> bool:
        """Let a task wait no longer; return whether it did."""
        return self._begins.pop(work, None) is not None


@dataclass(slots=True, eq=False)
class Work:
    """One task to run.

    Attributes:
        seconds: its duration on a node that is not overcommitted.
        failures: the number of FAILED attempts before it ends FINISHED.
        submitted_at, started_at: virtual seconds; `started_at` is None before the launch. A task
            of a gang has started when all of them have.
        job: for the submitter's own use.
        gang: the gang that it is a task of, if any.
        declared_s: the time in which it will have ended, as the master is told; 0 is none.
    """

    shape: Shape
    seconds: float
    failures: int = 0
    submitted_at: float = 0.0
    started_at: float | None = None
    job: object = field(default=None, repr=False)
    gang: Gang | None = field(default=None, repr=False)
    declared_s: float = 0.0

    def end(self) -> TaskState:
        """End one attempt, and return the state in which it ends."""
        if not self.failures:
            return TaskState.FINISHED
        self.failures -= 1
        return TaskState.FAILED
