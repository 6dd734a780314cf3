"""The work of a history, without the decisions of its master.

A log lacks the duration of tasks that have not ended, and demand after its end. So the work is an
estimate, on the assumptions listed in `ASSUMPTIONS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from statistics import median

from croupier.model.attributes import Constraint
from croupier.model.demand import Demand
from croupier.model.ids import Role
from croupier.model.ranges import count
from croupier.model.resources import Resources
from croupier.sim.machine import Size
from croupier.sim.replay.demand_history import demand_key
from croupier.sim.replay.history import FrameworkStay, History, TaskRun
from croupier.sim.work import Shape

ASSUMPTIONS = (
    "a task takes as long as it took; one that had not ended takes the median of its framework's",
    "if no task of a framework has ended, its tasks run to the end",
    "a task is wanted since its framework declared the demand for it",
    "a framework that declares none wants a task since its last decline, suppress or revive",
    "a framework that wants any number always has more tasks, like those that it had",
    "so has a framework that kept raising its demand before it was met",
    "every other framework has the tasks that it launched, and those that it still wanted",
    "tasks that were lost or preempted are left out: the tasks that replaced them are included",
    "agents and frameworks come and go as they did, frameworks not before their work is done",
    "each role of a framework is played by a framework of its own",
    "frameworks answer offers at once, and nothing fails",
)
# Shorter endless tasks would keep time from passing.
_LEAST_S = 0.001
_MAX_REMAINING = 100_000

_ShapeKey = tuple[Resources, tuple[Constraint, ...]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Tasks of one shape that are wanted from one moment on.

    Attributes:
        at: seconds since the beginning of the history.
        was_running: whether they ran at the beginning of the history: their wait is unknown.
    """

    at: float
    shape: Shape
    seconds: tuple[float, ...]
    was_running: bool = False


@dataclass(slots=True)
class TracePart:
    """The work of one framework in one role; times are seconds since the beginning.

    Attributes:
        left: the time of its removal; None if it was not removed.
        endless: tasks that are repeated without end, with their durations in turn.
    """

    framework_id: str
    role: Role
    came: float
    left: float | None
    declares: bool
    batches: list[Batch] = field(default_factory=list)
    endless: list[Batch] = field(default_factory=list)


def parts_of(history: History) -> list[TracePart]:
    """Return the parts of all frameworks, in the order in which they came."""
    runs: dict[tuple[str, Role], list[TaskRun]] = {}
    for run in history.tasks:
        runs.setdefault((run.framework_id, run.role), []).append(run)
    parts = []
    for stay in history.frameworks:
        roles = dict.fromkeys(stay.roles)
        roles |= {role: None for framework_id, role in runs if framework_id == stay.framework_id}
        for role in roles:
            part = _part(history, stay, role, runs.pop((stay.framework_id, role), []))
            if part.batches or part.endless:
                parts.append(part)
    return parts


class _Builder:
    def __init__(self, history: History, runs: Sequence[TaskRun]) -> None:
        self._start, self._end = history.start, history.end
        self._shapes: dict[_ShapeKey, Shape] = {}
        self.kept = [run for run in runs if not run.was_lost]
        ended = [run.ended_at - run.launched_at for run in self.kept if run.ended_at is not None]
        self._seen = [max(each, _LEAST_S) for each in ended]
        self._median = median(self._seen) if self._seen else None

    def shape(self, unit: Resources, demand: Demand | None) -> Shape:
        """Return the one object for a shape; the simulator compares shapes by identity."""
        constraints = demand.constraints if demand is not None else ()
        key = (unit, constraints)
        if key not in self._shapes:
            self._shapes[key] = Shape(unit, Size(unit["cpus"], unit["mem"]), constraints)
        return self._shapes[key]

    def seconds(self, run: TaskRun) -> float:
        """Return the duration of a task from its launch, or from the beginning."""
        launched = max(run.launched_at, self._start)
        if run.ended_at is not None:
            return max(run.ended_at - launched, _LEAST_S)
        if self._median is None:
            return self._end - self._start + 1
        return max(self._median - (launched - run.launched_at), self._end - launched, _LEAST_S)

    def guesses(self) -> Iterator[float]:
        """Return durations for tasks whose duration is unknown."""
        return cycle(self._seen or [self._end - self._start + 1])

    def pattern(self, runs: Sequence[TaskRun]) -> tuple[float, ...]:
        """Return the durations of tasks that are repeated without end."""
        return tuple(map(self.seconds, runs)) or tuple(islice(self.guesses(), 1))


def _part(history: History, stay: FrameworkStay, role: Role, runs: Sequence[TaskRun]) -> TracePart:
    start = history.start
    left = None if stay.left is None else stay.left - start
    part = TracePart(stay.framework_id, role, stay.came - start, left, stay.demands.declares)
    builder = _Builder(history, runs)
    batches: dict[tuple[float, Shape, bool], list[float]] = {}
    for run in builder.kept:
        if run.demand is not None and demand_key(role, run.demand) in stay.endless:
            part.declares = True
            continue
        was_running = run.launched_at <= start
        part.declares |= run.demand is not None
        wanted = run.launched_at if run.wanted_at is None else run.wanted_at
        at = max(wanted - start, part.came, 0.0)
        shape = builder.shape(_unit(run.resources), run.demand)
        batches.setdefault((at, shape, was_running), []).append(builder.seconds(run))
    guesses = builder.guesses()
    for tracked in stay.demands if stay.left is None else ():
        is_finite = tracked.role == role and demand_key(role, tracked.demand) not in stay.endless
        for since, units in tracked.waiting if is_finite else ():
            shape = builder.shape(tracked.demand.unit, tracked.demand)
            seconds = islice(guesses, min(units, _MAX_REMAINING))
            batches.setdefault((max(since - start, 0.0), shape, False), []).extend(seconds)
    part.batches = [
        Batch(at, shape, tuple(seconds), was_running)
        for (at, shape, was_running), seconds in sorted(batches.items(), key=lambda e: e[0][0])
    ]
    for key, (since, demand) in stay.endless.items():
        if key[0] == role:
            like = [
                run
                for run in builder.kept
                if run.demand is not None and demand_key(role, run.demand) == key
            ]
            shape = builder.shape(demand.unit, demand)
            part.endless.append(Batch(max(since - start, 0.0), shape, builder.pattern(like)))
    return part


def _unit(task: Resources) -> Resources:
    """Return a task's resources as a demand's unit: ranges become their counts."""
    scalars = dict(task.scalars)
    for name, ranges in task.ranges.items():
        scalars[name] = count(ranges) * 1000
    return Resources(scalars)
