"""Groups of tasks: all are started, or none; then each end may end the others.

Rules:
- The tasks of a group are added in one step. Their records are followed by one of the group: a
  group without it was written in part, and none of its tasks was started.
- The rules of `model.task_group` are applied in the step of each end, so the end is never durable
  without the kills that follow from it, or recovery applies them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from croupier.agent.core import effects as fx
from croupier.agent.core.events import Now, TaskLaunch
from croupier.agent.core.kills import kill_task
from croupier.agent.core.on_task import (
    note_framework_epoch,
    refuse_for_health,
    reject,
    rejection_of,
)
from croupier.agent.core.records import ForgetGroup, GroupRecord
from croupier.agent.core.state import AgentState
from croupier.agent.core.status_updates import Cause, start_task
from croupier.agent.core.tasks import GroupKey, KillOrder, LocalTask
from croupier.model.task import Reason, TaskState
from croupier.model.task_group import ends_rest


def on_launch_group(
    state: AgentState, launches: Sequence[TaskLaunch], now: Now
) -> Iterator[fx.Effect]:
    """Start all tasks of a group, or reject all; no effect if the order was sent twice."""
    orders = [launch.order for launch in launches]
    keys = [(order.framework_id, order.task.task_id) for order in orders]
    known = [key for key in keys if key in state.tasks or key in state.voided]
    if len(known) == len(keys):
        return
    if not state.health.is_healthy:
        for key in keys:
            if key not in known:
                yield from refuse_for_health(state, key)
        return
    rejections = list(_rejections(state, launches))
    if known and not any(rejections):
        message = f"the agent knows task {known[0][1]} of its group already"
        rejections[0] = Cause(reason=Reason.TASK_INVALID, message=message)
    first = next((place for place, cause in enumerate(rejections) if cause is not None), None)
    if first is not None:
        cause = rejections[first]
        assert cause is not None
        message = f"its group is not started: task {keys[first][1]}: {cause.message}"
        rest = Cause(reason=cause.reason, message=message)
        for key, order, rejection in zip(keys, orders, rejections, strict=True):
            if key not in known:
                yield from reject(state, order, rejection or rest, now)
        return
    group_id = orders[0].task.group_id
    yield from note_framework_epoch(state, orders[0].framework_id, orders[0].framework_epoch)
    for launch in launches:
        yield from start_task(state, launch, now)
    yield fx.Checkpoint(GroupRecord(orders[0].framework_id, group_id))


def _rejections(state: AgentState, launches: Sequence[TaskLaunch]) -> Iterator[Cause | None]:
    """Yield why each task of a group cannot be started; None if it can."""
    free, group_id = state.free, launches[0].order.task.group_id
    for launch in launches:
        order, info = launch.order, launch.order.task
        cause = rejection_of(state, launch)
        reason, message = Reason.TASK_INVALID, ""
        if not group_id or info.group_id != group_id:
            message = f"it is not of group {group_id!r}"
        elif (order.framework_id, group_id) in state.groups:
            message = f"the agent still has tasks of an earlier group {group_id}"
        elif not info.resources <= free:
            reason = Reason.INVALID_OFFERS
            message = f"it takes {info.resources}, but its group leaves {free or 'nothing'} free"
        else:
            free -= info.resources
        yield cause or (Cause(reason=reason, message=message) if message else None)


def apply_rules(state: AgentState, now: Now) -> Iterator[fx.Effect]:
    """End what must not outlive the tasks of groups that have ended in this step."""
    while state.ended_in_groups:
        task = state.tasks.get(state.ended_in_groups.pop(0))
        if task is not None:
            yield from _end_rest(state, task, now)


def apply_all_rules(state: AgentState, now: Now) -> Iterator[fx.Effect]:
    """Apply the rules to all ends that an earlier life recorded; it may not have recorded kills."""
    for task in [each for each in state.tasks.values() if each.group and not each.is_live]:
        yield from _end_rest(state, task, now)


def _end_rest(state: AgentState, ended: LocalTask, now: Now) -> Iterator[fx.Effect]:
    assert ended.group is not None
    live = [state.tasks[key] for key in state.groups[ended.group] if state.tasks[key].is_live]
    has_finished = ended.state is TaskState.FINISHED
    if not live or not ends_rest(ended.info.part, has_finished, [each.info.part for each in live]):
        return
    name = ended.info.task_id
    message = f"{ended.info.part} {name} of its group has ended as {ended.state.name}"
    for task in live:
        order = KillOrder(Reason.GROUP_ENDED, task.info.grace_ms, message)
        yield from kill_task(state, task, order, now)


def forget_group(group: GroupKey) -> Iterator[fx.Effect]:
    """Forget a group, once the agent has forgotten all its tasks."""
    yield fx.Checkpoint(ForgetGroup(*group), lazy=True)
    yield fx.ForgetGroup(group)
