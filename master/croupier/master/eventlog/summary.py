"""How things stand, for the head of a file whose predecessors may be gone.

Taking stock holds up the master, so it only gathers references to what never changes;
writing it down is for another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from croupier.master.core.frameworks import Framework, FrameworkState
from croupier.master.core.state import State
from croupier.master.eventlog.lines import (
    Known,
    KnownAgent,
    KnownFramework,
    KnownOffer,
    KnownRole,
    KnownTask,
)
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.task import TaskInfo

_Task = tuple[FrameworkId, Role, AgentId, TaskInfo, float]


def summarise(state: State) -> Callable[[], Iterator[Known]]:
    """Take stock now; what is returned lists it, at any later time.

    O(agents + frameworks x demands + tasks + offers): some 40 ms for 100,000 tasks.
    """
    known: list[Known] = [KnownRole(*each) for each in state.allocator.roles().items()]
    known += [
        KnownAgent(agent.agent_id, agent.hostname, agent.total, agent.attributes)
        for agent in state.agents.values()
        if agent.in_pool
    ]
    known += [
        _framework(state, framework)
        for framework in state.frameworks.values()
        if framework.state is not FrameworkState.REMOVED
    ]
    offers = list(state.offers.values())
    tasks: list[_Task] = [
        (task.framework_id, task.role, task.agent_id, task.info, task.since)
        for framework in state.frameworks.values()
        for task in framework.tasks.values()
        if task.is_charged
    ]
    known += [
        KnownOffer(each.offer_id, each.framework_id, each.role, each.agent_id) for each in offers
    ]
    return partial(_list, known, tasks)


def _framework(state: State, framework: Framework) -> KnownFramework:
    framework_id, leaves = framework.framework_id, state.allocator.tree.leaves
    return KnownFramework(
        framework_id,
        framework.name,
        framework.roles,
        framework.session or 0,
        state.allocator.demands(framework_id),
        tuple(
            role
            for role in framework.roles
            if (leaf := leaves.get((framework_id, role))) is not None and leaf.is_suppressed
        ),
    )


def _list(known: list[Known], tasks: list[_Task]) -> Iterator[Known]:
    yield from known
    for framework_id, role, agent_id, info, since in tasks:
        yield KnownTask(framework_id, info.task_id, role, agent_id, info.resources, since)
