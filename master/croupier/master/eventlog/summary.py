"""A summary of the master's state for the head of a file, since older files may be deleted.

`summarise` blocks the master, so it only collects references to values that never change. Another
thread turns them into lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from croupier.master.core.frameworks import Framework
from croupier.master.core.state import State
from croupier.master.core.tasks import Task
from croupier.master.eventlog.lines import (
    Known,
    KnownAgent,
    KnownFramework,
    KnownOffer,
    KnownRole,
    KnownTask,
)


def summarise(state: State) -> Callable[[], Iterator[Known]]:
    """Collect the state now; the returned function lists it at any later time.

    O(agents + frameworks x demands + tasks + offers).
    """
    roles = list(state.allocator.queries.roles().items())
    agents = [
        (agent.agent_id, agent.hostname, agent.total, agent.attributes, agent.features)
        for agent in state.agents.values()
        if agent.in_pool
    ]
    frameworks = [
        _framework(state, framework)
        for framework in state.frameworks.values()
        if not framework.is_removed
    ]
    offers = list(state.offers.values())
    tasks = [
        task
        for framework in state.frameworks.values()
        for task in framework.tasks.values()
        if task.is_active
    ]

    def known() -> Iterator[Known]:
        yield from (KnownRole(*each) for each in roles)
        yield from (KnownAgent(*each) for each in agents)
        yield from frameworks
        for offer in offers:
            yield KnownOffer(offer.offer_id, offer.framework_id, offer.role, offer.agent_id)
        yield from map(_task, tasks)

    return known


def _task(task: Task) -> KnownTask:
    """Return the fields of a task that never change, since the task may change meanwhile."""
    info = task.info
    place = (task.framework_id, info.task_id, task.role, task.agent_id)
    return KnownTask(*place, info.resources, task.since)


def _framework(state: State, framework: Framework) -> KnownFramework:
    queries = state.allocator.queries
    return KnownFramework(
        framework.framework_id,
        framework.name,
        framework.roles,
        framework.session or 0,
        queries.demands(framework.framework_id),
        queries.suppressed_roles(framework.framework_id),
    )
