"""Tasks that are lined up at agents: each starts in place of a task like it, without asking.

Rule: a lined-up task is the agent's to start until the agent has answered for it: by its start, as
the successor of a task that ended; by returning it; or by registering without it. If the agent is
lost before that, the task counts as placed there, since it may have started.

A lined-up task holds nothing. The charge of the task that it succeeds passes to it, so no share
changes. So a task is lined up only while the policy would deal to it next at that agent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from math import ceil
from typing import Final

from croupier.master.core import task_moves
from croupier.master.core.agents import Agent
from croupier.master.core.authorisation import require_user
from croupier.master.core.effects import Effect, Happened, Save, Send
from croupier.master.core.facts import TaskLined
from croupier.master.core.launches import order_launch
from croupier.master.core.messages import Placed
from croupier.master.core.on_requeue import ends_run, requeue
from croupier.master.core.on_task import end, moved_fact, on_status, order_kill, recall
from croupier.master.core.state import State
from croupier.master.core.tasks import Key, Task, TaskHold
from croupier.model.errors import CroupierError
from croupier.model.ids import FrameworkId
from croupier.model.task import Reason, TaskState, TaskStatus

# At one agent.
MOST_LINED_UP: Final = 64
# Behind tasks that run longer, none is lined up.
LONGEST_S: Final = 1.0
# Agents whose promises one slice of a pass checks; the others follow in turn.
AGENTS_AT_ONCE: Final = 100

# Framework, role and shape.
Place = tuple[FrameworkId, Key]


def may_succeed(agent: Agent, status: TaskStatus) -> bool:
    """Return whether the successor that a new status names can take the place of its task."""
    task = agent.tasks.get((status.framework_id, status.task_id))
    if not status.successor or task is None or status.sequence <= task.sequence:
        return True
    found = agent.line.get((status.framework_id, status.successor))
    if found is None or (found.role, found.info.resources) != (task.role, task.info.resources):
        return False
    return task.is_active and status.state.is_terminal


def on_update(state: State, agent: Agent, status: TaskStatus, now: float) -> Iterator[Effect]:
    """Apply an update; the charge of a task that has ended passes to its successor."""
    task = agent.tasks.get((status.framework_id, status.task_id))
    if task is None or status.sequence <= task.sequence:
        yield from on_status(state, status, now)
        return
    is_back = task.requeue is not None and ends_run(state, task, status)
    if status.state is TaskState.STARTING:
        task.begun_ms = status.time_ms
    elif status.state.is_terminal and task.begun_ms and task.kind is not None and not is_back:
        # A negative time is that of a clock that was set back.
        seconds = max(status.time_ms - task.begun_ms, 1) / 1000
        state.frameworks[task.framework_id].queues.note_run(task.kind, seconds)
    successor = agent.line[status.framework_id, status.successor] if status.successor else None
    if successor is not None:
        task_moves.succeed(state, task, successor, now)
    yield from requeue(state, task, status) if is_back else on_status(state, status, now)
    if successor is not None:
        yield from on_started(state, successor, now)


def on_started(state: State, task: Task, now: float) -> Iterator[Effect]:
    """Report that an agent started a lined-up task; kill it if that was requested."""
    framework, agent = state.frameworks[task.framework_id], state.agents[task.agent_id]
    yield Save(task.record())
    yield Happened(TaskLined("started"))
    yield Happened(moved_fact(task.status))
    if framework.session is not None:
        yield Send(framework.session, Placed(agent.describe(), (task.status,)))
    if task.kill is not None and task.is_active:
        yield from order_kill(state, task, now)


def give_back(state: State, task: Task, now: float) -> Iterator[Effect]:
    """Put a task that will not start at its agent back into the queue, or end it if it is due."""
    framework = state.frameworks[task.framework_id]
    task_moves.leave_line(state, task)
    yield Happened(TaskLined("returned"))
    if task.kill is None and task.role in framework.roles:
        task.hold_as(TaskHold.QUEUED)
        task_moves.enqueue(state, task, at_begin=True)
        yield Save(task.record())
        return
    task.queued = None
    if task.kill is not None:
        new, reason, message = TaskState.KILLED, task.kill.reason, "killed while queued"
    else:
        new, reason = TaskState.DROPPED, Reason.TASK_INVALID
        message = f"its framework has left role {task.role}"
    yield from end(state, task, new, reason, message, now)


def give_back_all(state: State, agent: Agent, now: float) -> Iterator[Effect]:
    """Put all tasks of a line back into their queues, the last one first."""
    for task in reversed(list(agent.line.values())):
        yield from give_back(state, task, now)


def recall_all(state: State, agent: Agent) -> Iterator[Effect]:
    """Recall all tasks that are lined up at an agent."""
    for task in agent.line.values():
        yield from recall(state, task)


def recall_of(state: State, framework_id: FrameworkId) -> Iterator[Effect]:
    """Recall all lined-up tasks of a framework. O(lined-up tasks)."""
    for agent_id in state.lined:
        for task in state.agents[agent_id].line.values():
            if task.framework_id == framework_id:
                yield from recall(state, task)


def recall_stranded(state: State) -> Iterator[Effect]:
    """Recall lines after a pass that has dealt nothing that they could succeed. O(ends)."""
    for agent_id in state.stranded:
        agent = state.agents.get(agent_id)
        if agent is not None and agent.session is not None:
            for task in agent.line.values():
                if (task.framework_id, task.kind) not in agent.running:
                    yield from recall(state, task)
    state.stranded.clear()


def recall_broken(state: State, now: float) -> Iterator[Effect]:
    """Recall, at some agents, lined-up tasks behind long ones, or not to be dealt to next."""
    for agent_id in list(islice(state.lined, AGENTS_AT_ONCE)):
        agent = state.agents[agent_id]
        # The others are checked first the next time.
        del state.lined[agent_id]
        state.lined[agent_id] = None
        places = {
            (task.framework_id, task.kind)
            for task in agent.line.values()
            if task.kind is not None and not task.is_recalled
        }
        if agent.session is not None and any(
            _runs_long(state, agent, place, now) or not _is_next(state, agent, place, now)
            for place in places
        ):
            yield from recall_all(state, agent)


def line_up(
    state: State, agent: Agent, places: Iterable[Place | None], now: float
) -> Iterator[Effect]:
    """Line up more tasks of these places at an agent, once half of them have started."""
    if not (agent.lines_up and agent.is_offered):
        return
    for place in places:
        if place is None or place[0] not in state.frameworks:
            continue
        number = _number(state, agent, place, now)
        if not number:
            continue
        if not _is_next(state, agent, place, now):
            yield from recall_all(state, agent)
            return
        yield from _line_up(state, agent, place, number)


def _is_next(state: State, agent: Agent, place: Place, now: float) -> bool:
    framework_id, (role, shape) = place
    return state.allocator.promises.would_deal(agent.agent_id, framework_id, role, shape, now)


def _runs_long(state: State, agent: Agent, place: Place, now: float) -> bool:
    """Return whether tasks like these run too long: as measured, or else as one at the agent does.

    The first ones of their kind may run for hours, while others find room elsewhere. O(1) once one
    has ended, else O(tasks of the agent).
    """
    run_s = state.frameworks[place[0]].queues.run_s.get(place[1])
    if run_s is not None:
        return run_s > LONGEST_S
    return any(
        now - task.since > LONGEST_S
        for task in agent.tasks.values()
        if task.is_active and (task.framework_id, task.kind) == place
    )


def _number(state: State, agent: Agent, place: Place, now: float) -> int:
    """Return how many tasks are to be lined up now; 0 as long as enough are.

    The last queued task stays in its queue: with it, the framework keeps its place in the order.
    And at least as many stay as are lined up, for other agents and slots that become free.
    """
    framework_id, key = place
    queues, shape = state.frameworks[framework_id].queues, key[1]
    waiting, slots = queues.length(key) - 1, agent.running.get(place, 0)
    run_s, window_s = queues.run_s.get(key), state.settings.line_window_s
    if waiting < 1 or not slots or not window_s or _runs_long(state, agent, place, now):
        return 0
    has_room = shape.unit <= state.allocator.queries.free(agent.agent_id)
    if has_room or any(task.is_recalled for task in agent.line.values()):
        return 0
    lined = sum((task.framework_id, task.kind) == place for task in agent.line.values())
    wanted = 1 if run_s is None else min(ceil(slots * window_s / run_s), MOST_LINED_UP)
    if 2 * lined > wanted:
        return 0
    spare = ceil((waiting - queues.lined[key]) / 2)
    return max(0, min(wanted - lined, MOST_LINED_UP - len(agent.line), spare))


def _line_up(state: State, agent: Agent, place: Place, number: int) -> Iterator[Effect]:
    framework_id, key = place
    framework = state.frameworks[framework_id]
    suitable: list[Task] = []
    for unit in framework.queues.first(key, number):
        if not _may_wait(state, agent, unit[0]):
            break
        suitable.extend(unit)
    for task in suitable:
        task.kind, _ = framework.queues.remove(task)
        task.agent_id = agent.agent_id
        task.hold_as(TaskHold.LINED_UP)
        task_moves.put_in_line(state, task)
    if suitable:
        # The allocator deals to the tasks that stay.
        framework.queues.lined[key] += len(suitable)
        state.allocator.queue(framework_id, *key, -len(suitable))
    for task in suitable:
        yield Save(task.record())
        yield order_launch(state, task)
        yield Happened(TaskLined("lined_up"))


def _may_wait(state: State, agent: Agent, task: Task) -> bool:
    """Return whether an agent can start the task without any more preparation."""
    info = task.info
    if info.command.secrets or info.isolation.image or info.group is not None:
        return False
    if info.executor is not None or info.executor_id:
        return False
    try:
        require_user(state.permissions(state.frameworks[task.framework_id].principal), agent, info)
        agent.check_suitable(info)
    except CroupierError:
        # It is reported when the task is dealt.
        return False
    return True
