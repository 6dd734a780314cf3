"""Forecasts for callers: when tasks of a framework may start.

Rule: one forecast is made at a time, in slices beside other work of the master, and all together
take at most a third of its time. A forecast serves equal requests for some seconds. Callers get
those of a framework that they may view, in the roles that they may view.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping
from itertools import islice
from typing import Any, Final

from croupier.master.allocator.pending_demand import Shape
from croupier.master.allocator.picture import Picture
from croupier.master.allocator.rehearsal import Target
from croupier.master.core.effects import PAUSE, Pause
from croupier.master.core.forecast import (
    MOST_TASKS,
    Forecast,
    foretell,
    picture_of,
    targets_of,
    targets_of_queued,
)
from croupier.master.core.state import State
from croupier.master.leadership.leadership import Leadership
from croupier.master.services.visibility import Visibility
from croupier.model.clock import Clock
from croupier.model.errors import Conflict, NotFound
from croupier.model.ids import FrameworkId, TaskId
from croupier.model.principal import Principal
from croupier.process.time_slice import TimeSlice
from croupier.v1 import operator_pb2 as pb
from croupier.v1.task_pb2 import TASK_QUEUED
from croupier.wire.resources import resources_to_wire

# How long an answer serves.
KEPT_S: Final = 5.0
# The pause after a forecast, in terms of the time that it took.
_PAUSE: Final = 2.0
_TOO_LARGE: Final = f"more than {MOST_TASKS:,} tasks run"
# Tasks of a list that are foretold.
MOST_LISTED: Final = 200
# What is foretold, by any name; and the picture, None if it would be too large.
_Seen = tuple[Mapping[Any, Target], Picture | None]


class Forecasts:
    """Makes forecasts."""

    def __init__(self, leadership: Leadership, clock: Clock) -> None:
        self._leadership, self._clock = leadership, clock
        self._one_at_a_time = asyncio.Lock()
        self._free_at = 0.0
        self._latest: tuple[Hashable, float, dict[Hashable, pb.Forecast]] | None = None

    async def of(
        self, framework_id: FrameworkId, task_id: TaskId, caller: Principal
    ) -> list[pb.Forecast]:
        """Return when the next tasks of a framework start, or the one of this id.

        Raises NotFound if the caller may view no such framework or task, Conflict if the task does
        not wait in a queue, and as `Leadership.read`.
        """
        key = (framework_id, task_id, caller)
        found = await self._foretold(
            key, lambda state, now: _seen(state, framework_id, task_id, caller, now)
        )
        return list(found.values())

    async def add_to(self, tasks: Iterable[pb.TaskView]) -> None:
        """Set the forecasts of the first `MOST_LISTED` of these tasks that wait in queues.

        Raises as `Leadership.read`.
        """
        waiting = (each for each in tasks if each.status.state == TASK_QUEUED and not each.agent_id)
        listed = {
            (FrameworkId(each.framework_id), TaskId(each.task.task_id)): each
            for each in islice(waiting, MOST_LISTED)
        }
        keys = tuple(listed)
        found = await self._foretold(keys, lambda state, now: _seen_listed(state, keys, now))
        for key, forecast in found.items():
            listed[key].forecast.CopyFrom(forecast)

    async def _foretold(
        self, key: Hashable, seen: Callable[[State, float], Generator[Pause, None, _Seen]]
    ) -> dict[Any, pb.Forecast]:
        """Return the forecasts of what is `seen`, by its names; `key` identifies the request."""
        async with self._one_at_a_time:
            now, latest = self._clock.now(), self._latest
            if latest is not None and latest[0] == key and now - latest[1] <= KEPT_S:
                return latest[2]
            if self._free_at > now:
                await asyncio.sleep(self._free_at - now)
                now = self._clock.now()
            whole: _Seen = await self._leadership.read(lambda state: seen(state, now))
            targets, picture = whole
            # Members of a group or gang start together.
            unique = list(dict.fromkeys(targets.values()))
            made = {each.target: _to_wire(each) for each in await _made(unique, picture)}
            found = {name: made[target] for name, target in targets.items()}
            self._latest, done_at = (key, now, found), self._clock.now()
            self._free_at = done_at + _PAUSE * (done_at - now)
            return found


def _seen(
    state: State, framework_id: FrameworkId, task_id: TaskId, caller: Principal, now: float
) -> Generator[Pause, None, _Seen]:
    visible, framework = Visibility(state, caller), state.frameworks.get(framework_id)
    if framework is None or not visible.has_framework(framework):
        raise NotFound(f"no framework {framework_id!r}")
    roles = visible.roles_of(framework)
    task = framework.tasks.get(task_id) if task_id else None
    if task_id and (task is None or task.role not in roles):
        raise NotFound(f"no task {task_id!r} of framework {framework_id!r}")
    if task is not None and not task.is_queued:
        where = f"lined up at agent {task.agent_id}" if task.is_lined_up else task.state.name
        raise Conflict(f"task {task_id} does not wait in a queue: it is {where}")
    if task is not None and task_id in framework.queues.returning:
        raise Conflict(f"task {task_id} waits for the other runs of its gang to end")
    targets = {each: each for each in targets_of(state, framework, task) if each.role in roles}
    picture = (yield from picture_of(state, now)) if targets else None
    return targets, picture


def _seen_listed(
    state: State, keys: Iterable[tuple[FrameworkId, TaskId]], now: float
) -> Generator[Pause, None, _Seen]:
    """Return the targets of listed tasks; some may have left their queue since."""
    listed: dict[FrameworkId, list[TaskId]] = {}
    for framework_id, task_id in keys:
        listed.setdefault(framework_id, []).append(task_id)
    targets: dict[tuple[FrameworkId, TaskId], Target] = {}
    for framework_id in filter(state.frameworks.__contains__, listed):
        found = targets_of_queued(state.frameworks[framework_id], listed[framework_id])
        targets |= {(framework_id, task_id): target for task_id, target in found.items()}
        yield PAUSE
    picture = (yield from picture_of(state, now)) if targets else None
    return targets, picture


async def _made(targets: list[Target], picture: Picture | None) -> list[Forecast]:
    """Rehearse in slices of a few milliseconds."""
    if picture is None:
        return [Forecast(target, None, None, _TOO_LARGE) for target in targets]
    held, steps = TimeSlice(), foretell(picture, targets)
    while True:
        try:
            next(steps)
        except StopIteration as over:
            found: list[Forecast] = over.value
            return found
        if held.is_over:
            await held.give_way()


def _to_wire(forecast: Forecast) -> pb.Forecast:
    what = forecast.target.what
    return pb.Forecast(
        role=forecast.target.role,
        unit=resources_to_wire(what.unit if isinstance(what, Shape) else what),
        median_ms=_ms(forecast.median_s),
        late_ms=_ms(forecast.late_s),
        problem=forecast.problem,
    )


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
