"""Runs of frameworks' programs, counted by the master: no order of an older one is obeyed.

Rule: what is remembered is bounded; of frameworks without tasks those go first that were
heard of the longest time ago.
"""

from __future__ import annotations

from collections.abc import Iterator

from croupier.agent.core.effects import Checkpoint, Effect
from croupier.agent.core.records import ForgetFramework, FrameworkRecord
from croupier.agent.core.state import AgentState
from croupier.model.ids import FrameworkId

MOST_FRAMEWORKS = 10_000


def note_framework_epoch(
    state: AgentState, framework_id: FrameworkId, epoch: int
) -> Iterator[Effect]:
    """An order of this run of a framework's program came in."""
    if epoch <= state.epochs.get(framework_id, 0):
        return
    # Put at the end: the news is the latest.
    state.epochs.pop(framework_id, None)
    state.epochs[framework_id] = epoch
    yield Checkpoint(FrameworkRecord(framework_id, epoch))
    if len(state.epochs) > MOST_FRAMEWORKS:
        yield from _forget_some(state)


def _forget_some(state: AgentState) -> Iterator[Effect]:
    """Forget the older half of those without tasks: O(tasks), once in thousands of times."""
    busy = {framework_id for framework_id, _ in state.tasks}
    idle = [each for each in state.epochs if each not in busy]
    for framework_id in idle[: len(idle) // 2]:
        del state.epochs[framework_id]
        yield Checkpoint(ForgetFramework(framework_id), lazy=True)
