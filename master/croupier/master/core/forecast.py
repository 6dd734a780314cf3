"""Forecasts: when a waiting task may start.

Rule: a forecast reads the state once, as a picture; what follows from that needs no state, and
takes its time beside other work. It says why there is none, where there is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

from croupier.master.allocator.picture import Lasting, Picture, Running
from croupier.master.allocator.rehearsal import MOST_EVENTS, WALKS, Course, Target, rehearse
from croupier.master.core.durations import Law, left_ms
from croupier.master.core.effects import PAUSE, Pause
from croupier.master.core.frameworks import Framework
from croupier.master.core.state import State
from croupier.master.core.tasks import Task
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId

# Running tasks in a picture.
MOST_TASKS: Final = 20_000
# Shapes of a framework that are foretold.
MOST_SHAPES: Final = 8
_AGENTS_IN_SLICE: Final = 100


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a task may start.

    Attributes:
        median_s, late_s: the seconds by which it starts in half, and in nine tenths, of the
            rehearsals; None if it does not.
        problem: why there is no median; empty if there is one.
    """

    target: Target
    median_s: float | None
    late_s: float | None
    problem: str = ""


def targets_of(state: State, framework: Framework, task: Task | None) -> list[Target]:
    """Return what a forecast is about: a queued task, or the next of each shape that waits."""
    if task is not None:
        return list(targets_of_queued(framework, [task.task_id]).values())
    waiting = state.allocator.queries.waiting_for(framework.framework_id)
    return [Target(framework.framework_id, *each) for each in waiting[:MOST_SHAPES]]


def targets_of_queued(framework: Framework, task_ids: Iterable[TaskId]) -> dict[TaskId, Target]:
    """Return what forecasts of those of the tasks are about that are in queues. O(queued tasks)."""
    return {
        task_id: Target(framework.framework_id, role, shape, number)
        for task_id, (role, shape), number in framework.queues.positions(task_ids)
    }


def picture_of(state: State, now: float) -> Generator[Pause, None, Picture | None]:
    """Return a picture of the state; None if too many tasks run. O(agents + tasks)."""
    running: list[Running] = []
    lined: Counter[tuple[AgentId, FrameworkId, Role]] = Counter()
    lasting = _Lasting(state, now)
    for number, agent in enumerate(state.agents.values()):
        if number % _AGENTS_IN_SLICE == 0:
            yield PAUSE
        if len(running) > MOST_TASKS:
            return None
        for task in agent.tasks.values():
            if task.is_active and task.rest:
                held = (agent.agent_id, task.framework_id, task.role, task.rest)
                running.append(Running(*held, lasting.rest_of(task)))
        for offer in agent.offers.values():
            if not offer.hold_id:
                held = (agent.agent_id, offer.framework_id, offer.role, offer.resources)
                running.append(Running(*held, lasting.of(offer.framework_id, offer.role)))
        for task in agent.line.values():
            lined[agent.agent_id, task.framework_id, task.role] += 1
    return state.allocator.queries.picture(running, lined, lasting.of, now)


class _Lasting:
    """How long tasks run, as known at one moment."""

    def __init__(self, state: State, now: float) -> None:
        self._state, self._now = state, now
        self._laws: dict[tuple[FrameworkId, Role, str], Law | None] = {}

    def of(self, framework_id: FrameworkId, role: Role) -> Lasting:
        """Return how long a task of the framework runs that is yet to start."""
        return partial(_left_s, self._law(framework_id, role), 0, 0)

    def rest_of(self, task: Task) -> Lasting:
        """Return how long a running task runs on; under an earlier master it may have begun."""
        law = self._law(task.framework_id, task.role, task.info.name)
        elapsed_ms = max(0, round((self._now - task.since) * 1000))
        return partial(_left_s, law, task.info.max_completion_ms, elapsed_ms)

    def _law(self, framework_id: FrameworkId, role: Role, task: str = "") -> Law | None:
        key = (framework_id, role, task)
        if key not in self._laws:
            name = self._state.frameworks[framework_id].name
            self._laws[key] = self._state.durations.of(name, role, task)
        return self._laws[key]


def foretell(picture: Picture, targets: Sequence[Target]) -> Generator[None, None, list[Forecast]]:
    """Rehearse what is to come, and sum up when each target starts. Yields for other work."""
    courses: list[Course] = []
    for walk in range(WALKS if targets else 0):
        course = yield from rehearse(picture, targets, walk)
        courses.append(course)
        if course.is_cut and not course.starts:
            # The others take as long.
            break
    return [_summed_up(target, courses) for target in targets]


def _summed_up(target: Target, courses: Sequence[Course]) -> Forecast:
    starts = sorted(course.starts.get(target, inf) for course in courses)
    starts += [inf] * (WALKS - len(starts))
    median, late = starts[WALKS // 2 - 1], starts[WALKS * 9 // 10 - 1]
    if median < inf:
        return Forecast(target, median, late if late < inf else None)
    failed = next(course for course in courses if target not in course.starts)
    if failed.is_cut:
        problem = f"more than {MOST_EVENTS} tasks end before it"
    elif failed.endless:
        whose = "a task" if failed.endless == 1 else f"{failed.endless} tasks"
        problem = f"it is not known how long {whose} ahead of it will run"
    else:
        problem = "the end of all running tasks makes no room for it"
    return Forecast(target, None, None, problem)


def _left_s(known: Law | None, declared_ms: int, elapsed_ms: int, per_mille: int) -> float | None:
    left = left_ms(known, declared_ms, elapsed_ms, per_mille)
    return None if left is None else left / 1000
