"""What an operation affects: live tasks, by framework and by agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from croupier.api.forms import TYPES
from croupier.api.http_pb2 import Affected, AffectedAgent, AffectedFramework, AffectedTask
from croupier.model.task import TERMINAL
from croupier.v1.operator_pb2 import TaskView

# Tasks that are named; more are counted.
MOST_NAMED: Final = 1_000


def is_live(task: TaskView) -> bool:
    """Return whether a task has not ended."""
    return int(task.status.state) not in TERMINAL


def affected_task(task: TaskView) -> AffectedTask:
    """Return the names of a task, and its state."""
    return AffectedTask(
        task_id=task.task.task_id,
        framework_id=task.framework_id,
        agent_id=task.agent_id,
        state=TYPES["TaskState"].convert(task.status.state),
    )


def affected(
    tasks: Sequence[TaskView], names: Mapping[str, str], hostnames: Mapping[str, str]
) -> Affected:
    """Return what ending live `tasks` affects; `names` and `hostnames` are those of ids."""
    frameworks = Counter(task.framework_id for task in tasks)
    agents = Counter(task.agent_id for task in tasks if task.agent_id)
    return Affected(
        tasks=len(tasks),
        frameworks=[
            AffectedFramework(framework_id=each, name=names.get(each, ""), tasks=number)
            for each, number in sorted(frameworks.items())
        ],
        agents=[
            AffectedAgent(agent_id=each, hostname=hostnames.get(each, ""), tasks=number)
            for each, number in sorted(agents.items())
        ],
        named=map(affected_task, tasks[:MOST_NAMED]),
    )
