"""What could start now, and what would have to end for one more.

Rule: a question changes nothing. On each agent offers would end before tasks, and the newest tasks
before older ones, as in a preemption; what turns out not to be needed stays. The agent on which the
fewest tasks would end is the answer. Whether those may be preempted is another question.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from croupier.master.allocator.room import Room
from croupier.master.core.agents import Agent
from croupier.master.core.effects import PAUSE, Pause
from croupier.master.core.frameworks import Framework
from croupier.master.core.on_preemption import InExecutors, by_executor, freed_with
from croupier.master.core.state import State
from croupier.master.core.tasks import Task, TaskKey
from croupier.model.demand import Demand
from croupier.model.devices import needs_of, slots_of, units_with_devices
from croupier.model.ids import AgentId, FrameworkId
from croupier.model.resources import NOTHING, Resources, sum_of

# Agents whose tasks are weighed between two moments for other work, in about 1 ms each.
_AGENTS_IN_SLICE: Final = 10


@dataclass(frozen=True, slots=True)
class Move:
    """What would have to end on one agent for one more unit.

    Attributes:
        offers: the number of offers.
        tasks: the tasks, the newest first.
    """

    agent_id: AgentId
    offers: int
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class Ending:
    """An offer, or tasks that end together, those of a gang on several agents."""

    offered: Resources = NOTHING
    tasks: Mapping[TaskKey, Task] = field(default_factory=dict)


def fit(
    state: State, demand: Demand, now: float
) -> Generator[Pause, None, tuple[Room, Move | None]]:
    """Count the units of a demand that could start now, and find the least move for one more.

    Without a move there is a limit in the way, or no end of tasks helps. O(agents + tasks).
    """
    counted = state.allocator.queries.room_for(demand, now)
    while True:
        try:
            next(counted)
        except StopIteration as over:
            room: Room = over.value
            break
        yield PAUSE
    best: Move | None = None
    for number, (agent_id, free) in enumerate(room.full.items() if not room.limit else ()):
        if number % _AGENTS_IN_SLICE == _AGENTS_IN_SLICE - 1:
            yield PAUSE
        found = _move(state, state.agents[agent_id], demand, free)
        if found is not None and (best is None or _cost(found) < _cost(best)):
            best = found
    return room, best


def _cost(move: Move) -> tuple[int, int, AgentId]:
    return len(move.tasks), move.offers, move.agent_id


def _move(state: State, agent: Agent, demand: Demand, free: Resources) -> Move | None:
    """Return what would have to end on the agent for a unit; None if nothing helps."""
    needs = () if demand.devices is None else needs_of(demand.unit, demand.devices)

    has_needs = agent.inventory is not None and bool(agent.inventory.needs(demand.unit, needs))

    def fits(room: Resources) -> bool:
        units = demand.unit.units_within(room, 1)
        return bool(units_with_devices(agent.inventory, demand.unit, needs, room, units))

    chosen: list[tuple[Ending, Resources]] = []
    ended: set[TaskKey] = set()
    for ending in _endings(state, agent):
        if fits(free):
            break
        # A task may end alone, or with its executor.
        more = [task for key, task in ending.tasks.items() if key not in ended]
        here = (task.rest for task in more if task.agent_id == agent.agent_id)
        freed = ending.offered + sum_of(here)
        scalars = demand.unit.scalars.items()
        # Devices may be enough in number, and not free as they are needed.
        if (has_needs and slots_of(freed)) or any(_helps(*each, freed, free) for each in scalars):
            free = free + freed
            chosen.append((ending, freed))
            ended.update(ending.tasks)
    if not fits(free):
        return None
    needed: list[Ending] = []
    for ending, freed in chosen:
        if fits(free - freed):
            free = free - freed
        else:
            needed.append(ending)
    tasks = dict(chain.from_iterable(ending.tasks.items() for ending in needed))
    return Move(agent.agent_id, sum(not each.tasks for each in needed), tuple(tasks.values()))


def _helps(name: str, milli: int, freed: Resources, free: Resources) -> bool:
    """Return whether a resource is short, and some of it is freed."""
    is_range = name in freed.ranges
    return (is_range or freed[name] > 0) and (is_range or free[name] < milli)


def _endings(state: State, agent: Agent) -> Iterator[Ending]:
    """Yield what could end on the agent, in order: offers, then tasks, the newest first."""
    for offer in agent.offers.values():
        if not offer.hold_id:
            yield Ending(offered=offer.resources)
    tasks_of: dict[FrameworkId, list[Task]] = {}
    for task in agent.tasks.values():
        tasks_of.setdefault(task.framework_id, []).append(task)
    found: list[tuple[Task, list[Task]]] = []
    for framework_id, tasks in tasks_of.items():
        framework, in_executors = state.frameworks[framework_id], by_executor(tasks)
        for task in tasks:
            live = _ending_with(framework, task, in_executors) if task.is_active else []
            if live:
                found.append((task, live))
    # Those of one launch: the fewest first.
    found.sort(
        key=lambda each: (-each[0].since, len(each[1]), each[0].framework_id, each[0].task_id)
    )
    for _, live in found:
        yield Ending(tasks={each.key: each for each in live})


def _ending_with(framework: Framework, task: Task, in_executors: InExecutors) -> list[Task]:
    """Return the tasks that end with the task; none for all but one of a group."""
    if task.info.gang is None:
        return freed_with(framework, task, in_executors)
    return [each for each in framework.queued_with(task) if each.is_active]
