"""Epochs of frameworks, counted by the master: the agent obeys no order of an older epoch.

Rule: the agent remembers a bounded number of epochs. It first forgets those of frameworks without
tasks, the least recently changed ones first.
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
    """Record the epoch of an order if it is new."""
    if epoch <= state.epochs.get(framework_id, 0):
        return
    # The latest change comes last.
    state.epochs.pop(framework_id, None)
    state.epochs[framework_id] = epoch
    yield Checkpoint(FrameworkRecord(framework_id, epoch))
    if len(state.epochs) > MOST_FRAMEWORKS:
        yield from _forget_idle(state)


def _forget_idle(state: AgentState) -> Iterator[Effect]:
    """Forget the older half of the frameworks without tasks. O(tasks), but rare."""
    busy = {framework_id for framework_id, _ in state.tasks}
    idle = [each for each in state.epochs if each not in busy]
    for framework_id in idle[: len(idle) // 2]:
        del state.epochs[framework_id]
        yield Checkpoint(ForgetFramework(framework_id), lazy=True)
