"""Lined-up tasks: each waits for the end of a task like it, and starts in its place.

Rule: a lined-up task is either started, and named in the status of the task that it succeeds, or
returned; never both. It is forgotten with the session, and REGISTER of the next one lacks it. It
has no record before it starts, so a restart forgets it too.

Without a task that it could succeed, it waits: a launch of one may be on its way. The master, which
deals the free resources, recalls it otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator

from croupier.agent.core import effects as fx
from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import Key, LocalTask, place_of
from croupier.model.agent_orders import LaunchTask
from croupier.model.errors import InvalidRequest
from croupier.model.task_checks import check_task


def line_up(state: AgentState, order: LaunchTask, *, can_start: bool) -> Iterator[fx.Effect]:
    """Line up a task, or return it if it `can_start` only by an order of its own, or never."""
    if state.session is None:
        # The order came with a session that has ended.
        return
    key = (order.framework_id, order.task.task_id)
    if can_start and _is_valid(state, order) and _may_start(state):
        state.line[key] = order
    else:
        yield fx.ReturnTasks(state.session, (key,))


def on_recall(state: AgentState, key: Key) -> Iterator[fx.Effect]:
    """Return a lined-up task; if it has started, the master learns that anyway."""
    if state.line.pop(key, None) is not None:
        assert state.session is not None
        yield fx.ReturnTasks(state.session, (key,))


def take_successor(state: AgentState, task: LocalTask) -> LaunchTask | None:
    """Remove and return the line's successor of a task that ends; None if none may start."""
    is_killed = not task.is_live or task.kill is not None
    if is_killed or not (state.line and _may_start(state)):
        return None
    found = next((key for key, each in state.line.items() if place_of(each) == task.place), None)
    return None if found is None else state.line.pop(found)


def return_all(state: AgentState) -> Iterator[fx.Effect]:
    """Return the whole line."""
    if state.line and state.session is not None:
        returned = tuple(state.line)
        state.line.clear()
        yield fx.ReturnTasks(state.session, returned)


def _may_start(state: AgentState) -> bool:
    return state.health.is_healthy and not state.stopping


def _is_valid(state: AgentState, order: LaunchTask) -> bool:
    try:
        check_task(order.task)
    except InvalidRequest:
        return False
    return not (order.task.needs() - state.features or order.task.command.secrets)
