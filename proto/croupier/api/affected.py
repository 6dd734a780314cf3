"""What an operation affects: live tasks, by framework and by agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final, TypedDict

from croupier.model.task import TERMINAL

# Tasks that are named; more are counted.
MOST_NAMED: Final = 1_000
_ENDED: Final = frozenset(state.name for state in TERMINAL)


class AffectedFramework(TypedDict):
    """A framework with the number of its tasks that are affected."""

    framework_id: str
    name: str
    tasks: int


class AffectedAgent(TypedDict):
    """An agent with the number of its tasks that are affected."""

    agent_id: str
    hostname: str
    tasks: int


class AffectedTask(TypedDict):
    """A live task that is affected."""

    task_id: str
    framework_id: str
    agent_id: str
    state: str


class Affected(TypedDict):
    """What an operation affects.

    Attributes:
        tasks: the number of live tasks that would end, or be lost.
        frameworks: those that have them, in the order of ids.
        agents: those that run them, in the order of ids; queued tasks have none.
        named: the first 1,000 of the tasks.
    """

    tasks: int
    frameworks: list[AffectedFramework]
    agents: list[AffectedAgent]
    named: list[AffectedTask]


def is_live(task: Mapping[str, Any]) -> bool:
    """Return whether a task, as a JSON object, has not ended."""
    return task["state"] not in _ENDED


def affected_frameworks(
    tasks: Iterable[Mapping[str, Any]], names: Mapping[str, str]
) -> list[AffectedFramework]:
    """Return the frameworks of tasks; `names` are theirs by id."""
    counts = Counter(task["framework_id"] for task in tasks)
    return [
        {"framework_id": each, "name": names.get(each, ""), "tasks": number}
        for each, number in sorted(counts.items())
    ]


def affected_agents(
    tasks: Iterable[Mapping[str, Any]], hostnames: Mapping[str, str]
) -> list[AffectedAgent]:
    """Return the agents of tasks; `hostnames` are theirs by id."""
    counts = Counter(task["agent_id"] for task in tasks if task["agent_id"])
    return [
        {"agent_id": each, "hostname": hostnames.get(each, ""), "tasks": number}
        for each, number in sorted(counts.items())
    ]


def affected_view(
    tasks: Iterable[Mapping[str, Any]], names: Mapping[str, str], hostnames: Mapping[str, str]
) -> Affected:
    """Return what an operation affects that ends those of `tasks` that are live."""
    live = [task for task in tasks if is_live(task)]
    return {
        "tasks": len(live),
        "frameworks": affected_frameworks(live, names),
        "agents": affected_agents(live, hostnames),
        "named": [
            {
                "task_id": task["task_id"],
                "framework_id": task["framework_id"],
                "agent_id": task["agent_id"],
                "state": task["state"],
            }
            for task in islice(live, MOST_NAMED)
        ],
    }
