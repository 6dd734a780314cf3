"""The launch of tasks on an agent: how many a framework may have, the charges, and the order."""

from __future__ import annotations

from croupier.master.core.effects import Send
from croupier.master.core.frameworks import Framework
from croupier.master.core.holds import place_of
from croupier.master.core.state import State
from croupier.master.core.tasks import Task
from croupier.model.agent_orders import LaunchGroup, LaunchTask
from croupier.model.errors import Conflict
from croupier.model.ids import AgentId


def check_counts(state: State, framework: Framework, more: int = 0) -> None:
    """Check that the framework and its owner may have one more task, after `more` others.

    Raises Conflict if some of their tasks have to end first.
    """
    if framework.ended >= state.settings.unacknowledged:
        raise Conflict(
            f"{framework.ended} tasks of the framework have ended and wait for its"
            " acknowledgement; nothing more is launched before"
        )
    owned = state.owned.tasks(framework.owner) + more
    if framework.owner and owned >= state.settings.owner_tasks:
        raise Conflict(f"{framework.owner} has {state.settings.owner_tasks} tasks; end some first")
    if state.descriptions.is_full_for(framework.framework_id):
        raise Conflict("the framework's tasks have too much text together; wait until some end")
    if state.descriptions.is_over:
        raise Conflict("all tasks of the cluster have too much text together; try again later")


def launch_charges(state: State, task: Task, agent_id: AgentId) -> None:
    """Turn offered resources into those of a task: of the agent, and of its hold."""
    launch, owner = state.allocator.charges.launch, (task.framework_id, task.role)
    launch(*owner, agent_id, task.rest)
    if task.held:
        launch(*owner, place_of(agent_id, task.hold_id), task.held, tasks=0)


def order_launch(state: State, *tasks: Task) -> Send:
    """Return the order to launch a task or a group, first or again if it never arrived."""
    first = tasks[0]
    agent = state.agents[first.agent_id]
    assert agent.session is not None
    epoch = state.frameworks[first.framework_id].epoch
    orders = tuple(
        LaunchTask(
            task.framework_id,
            task.info,
            task.role,
            epoch,
            lined_up=task.is_lined_up,
            sequence=0 if task.requeue is None else task.requeue.sequence,
        )
        for task in tasks
    )
    is_group = first.info.group is not None
    return Send(agent.session, LaunchGroup(orders) if is_group else orders[0])
