"""Tasks that exceed a limit while they run."""

from __future__ import annotations

from collections.abc import Iterator

from croupier.agent.core.effects import Effect
from croupier.agent.core.events import LimitExceeded, Now
from croupier.agent.core.on_task import kill_task
from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import Killing, KillOrder, LocalTask, Running
from croupier.model.task import Reason


def on_timed_out(state: AgentState, task: LocalTask, now: Now) -> Iterator[Effect]:
    """Ask a task to end that has run for as long as it may."""
    yield from kill_task(state, task, KillOrder(Reason.TIMED_OUT, task.info.grace_ms), now)


def on_limit_exceeded(state: AgentState, event: LimitExceeded, now: Now) -> Iterator[Effect]:
    """Kill a task at once that exceeds a limit, also in the grace of another kill."""
    task = state.tasks.get(event.key)
    if task is None or task.run != event.run:
        return
    # The start of a task that was just started is reported soon, and the event is repeated.
    if isinstance(task.phase, Running | Killing):
        order = KillOrder(event.exceeded.reason, 0)
        yield from kill_task(state, task, order, now, event.exceeded.message)
