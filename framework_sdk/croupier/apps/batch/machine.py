"""The state of each task of a run. Pure.

Rule: `TRANSITIONS` lists every move of a task. DONE, FAILED and SKIPPED are final: each task gets
to one of them once. A task starts after all tasks that it waits for have ended; it is skipped if
one that had to succeed did not. A failed attempt is followed by another one only while retries are
left; an attempt that never ran does not count as one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from croupier.apps.batch.plan import JobPlan, Node
from croupier.apps.controller.outcomes import Outcome

# An agent may drop a task that has not begun; it is launched again, this often.
MAX_DROPS: Final = 20


class NodeState(Enum):
    """The state of a task; the values are stored."""

    WAITING = "waiting"
    READY = "ready"
    PAUSED = "paused"
    ACTIVE = "active"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"

    @property
    def is_final(self) -> bool:
        """Whether the task has ended."""
        return self in FINAL

    @property
    def stored(self) -> NodeState:
        """The state to store: WAITING for a task that is to be started again."""
        return self if self in _KEPT else NodeState.WAITING


_S = NodeState
_KEPT: Final = frozenset({_S.ACTIVE, _S.DONE, _S.FAILED})
FINAL: Final = frozenset({_S.DONE, _S.FAILED, _S.SKIPPED})
TRANSITIONS: Final[dict[NodeState, frozenset[NodeState]]] = {
    _S.WAITING: frozenset({_S.READY, _S.PAUSED, _S.ACTIVE, *FINAL}),
    _S.READY: frozenset({_S.ACTIVE}),
    _S.PAUSED: frozenset({_S.READY}),
    _S.ACTIVE: frozenset({_S.READY, _S.PAUSED, _S.DONE, _S.FAILED}),
    **{state: frozenset() for state in FINAL},
}


@dataclass(slots=True)
class Row:
    """The stored state of a task that was started at least once.

    Attributes:
        launches: how often it was handed to the cluster; numbers its task ids.
        failures: failed attempts.
        drops: attempts that never ran.
        agent_id: of the latest attempt that failed.
        reason: why that attempt failed; empty if none did.
        output: the last lines of a task that failed.
    """

    name: str
    state: NodeState = NodeState.WAITING
    launches: int = 0
    failures: int = 0
    drops: int = 0
    agent_id: str = ""
    reason: str = ""
    output: str = ""


@dataclass(slots=True)
class BatchTask(Row):
    """The state of one task.

    Attributes:
        cause: the name of the failed task for which it was SKIPPED.
        open_ids: task ids of its latest launch that have not ended, while it is ACTIVE: one, or
            those of the members of its gang.
    """

    node: Node = field(kw_only=True)
    cause: str = ""
    open_ids: list[str] = field(default_factory=list)

    def report(self, agent_id: str = "", reason: str = "", output: str = "") -> None:
        """Record the latest failed attempt; without arguments, that there is none."""
        self.agent_id, self.reason, self.output = agent_id, reason, output


class BatchTasks:
    """All tasks of one run.

    Attributes:
        tasks: in the order of the plan.
        counts: tasks in each state.
        is_stopped: whether no further task starts; set by the caller.
    """

    def __init__(self, plan: JobPlan, rows: Iterable[Row] = ()) -> None:
        """Begin, or continue with what is stored of tasks."""
        self.plan = plan
        self.tasks = [BatchTask(node.name, node=node) for node in plan.tasks]
        self.counts = dict.fromkeys(NodeState, 0)
        self.counts[NodeState.WAITING] = plan.count
        self.is_stopped = False
        self._needs = [node.needs for node in plan.nodes]
        # The failed task that keeps a node from succeeding; empty if there is none.
        self._causes = [""] * len(plan.nodes)
        self._ready: list[int] = []
        self._paused: list[tuple[float, int]] = []
        self._active: dict[str, BatchTask] = {}
        self._restore(rows)
        ended = [task for task in self.tasks if task.state.is_final]
        for node in plan.nodes:
            if not node.needs:
                self._unblock(node.index)
        for task in ended:
            self._settle(task.node, "" if task.state is NodeState.DONE else task.name)

    def _restore(self, rows: Iterable[Row]) -> None:
        named = {task.name: task for task in self.tasks}
        for row in rows:
            task = named.get(row.name)
            if task is None:
                continue
            task.launches, task.failures, task.drops = row.launches, row.failures, row.drops
            if row.reason:
                task.report(row.agent_id, row.reason, row.output)
            if row.state in _KEPT:
                self._move(task, row.state)

    def take(self, most: int) -> list[BatchTask]:
        """Start up to `most` ready tasks, in the order of the plan."""
        if self.is_stopped:
            return []
        taken: list[BatchTask] = []
        while self._ready and len(taken) < most:
            task = self.tasks[heapq.heappop(self._ready)]
            task.launches += 1
            self._move(task, NodeState.ACTIVE)
            taken.append(task)
        return taken

    def on_member_end(self, task_id: str) -> bool:
        """Note the end of one of the members of an attempt; return whether it is the last one.

        The end of the last one is that of the attempt, which `on_end` applies.
        """
        task = self._active[task_id]
        if task.open_ids == [task_id]:
            return True
        task.open_ids.remove(task_id)
        del self._active[task_id]
        return False

    def on_end(
        self, task: BatchTask, outcome: Outcome, now: float = 0.0, chance: float = 0.5
    ) -> None:
        """Apply the end of an attempt, and skip the tasks that needed its success.

        `chance`, from 0 to 1, picks the pause before a retry within its jitter.
        """
        assert task.state is NodeState.ACTIVE
        if outcome is Outcome.SUCCEEDED:
            self._move(task, NodeState.DONE)
            self._settle(task.node, "")
            return
        if outcome in (Outcome.STOPPED, Outcome.DEFERRED):
            self._make_ready(task)
            return
        backoff = task.node.step.spec.backoff
        if outcome is Outcome.NEVER_RAN:
            task.drops += 1
            if task.drops <= MAX_DROPS:
                self._pause(task, now + min(backoff.pause_s(task.drops, chance), 30.0))
                return
        else:
            task.failures += 1
            if outcome is not Outcome.REFUSED and task.failures <= task.node.step.spec.retries:
                self._pause(task, now + backoff.pause_s(task.failures, chance))
                return
        self._move(task, NodeState.FAILED)
        self._settle(task.node, task.name)

    def on_time(self, now: float) -> None:
        """Make the tasks ready whose pause is over."""
        while self._paused and self._paused[0][0] <= now:
            self._make_ready(self.tasks[heapq.heappop(self._paused)[1]])

    @property
    def next_due(self) -> float | None:
        """When the next pause is over; None if no task pauses."""
        return self._paused[0][0] if self._paused else None

    @property
    def active(self) -> list[BatchTask]:
        """The tasks that the cluster has."""
        return list({task.name: task for task in self._active.values()}.values())

    def find(self, task_id: str) -> BatchTask | None:
        """Return the active task whose latest launch has this task id, which has not ended."""
        return self._active.get(task_id)

    @property
    def is_over(self) -> bool:
        """Whether all tasks have ended; once stopped, whether none is active."""
        if self.is_stopped:
            return not self.counts[NodeState.ACTIVE]
        return self.is_complete

    @property
    def is_complete(self) -> bool:
        """Whether all tasks have ended."""
        return sum(self.counts[state] for state in FINAL) == self.plan.count

    def check(self) -> None:
        """Check all invariants."""
        states = [task.state for task in self.tasks]
        assert {state: states.count(state) for state in NodeState} == self.counts
        for task in self.tasks:
            needs = self._needs[task.node.index]
            assert needs >= 0
            if task.state is NodeState.WAITING:
                assert needs
            elif task.state not in _KEPT:  # others may be of a run that was restored
                assert not needs
            assert task.failures <= task.launches
        active = [task for task in self.tasks if task.state is NodeState.ACTIVE]
        assert self._active == {task_id: task for task in active for task_id in task.open_ids}
        for task in active:
            assert task.open_ids
            assert set(task.node.member_ids(task.launches)).issuperset(task.open_ids)

    def _settle(self, node: Node, cause: str) -> None:
        """Pass the end of a node on to its dependents; with a cause, it has failed."""
        ended = [(node, cause)]
        while ended:
            node, cause = ended.pop()
            for target, must_succeed in node.dependents:
                if must_succeed and not self._causes[target]:
                    self._causes[target] = cause
                self._needs[target] -= 1
                if not self._needs[target] and self._unblock(target):
                    ended.append((self.plan.nodes[target], self._causes[target]))

    def _unblock(self, index: int) -> bool:
        """Handle a node that no longer waits; return whether that ended it."""
        if self.plan.nodes[index].is_barrier:
            return True
        task = self.tasks[index]
        if task.state is not NodeState.WAITING:
            return False  # restored
        task.cause = self._causes[index]
        if not task.cause:
            self._make_ready(task)
            return False
        self._move(task, NodeState.SKIPPED)
        return True

    def _make_ready(self, task: BatchTask) -> None:
        self._move(task, NodeState.READY)
        heapq.heappush(self._ready, task.node.index)

    def _pause(self, task: BatchTask, due: float) -> None:
        self._move(task, NodeState.PAUSED)
        heapq.heappush(self._paused, (due, task.node.index))

    def _move(self, task: BatchTask, state: NodeState) -> None:
        assert state in TRANSITIONS[task.state], f"{task.name}: {task.state} to {state}"
        self.counts[task.state] -= 1
        self.counts[state] += 1
        if task.state is NodeState.ACTIVE:
            for task_id in task.open_ids:
                del self._active[task_id]
        elif state is NodeState.ACTIVE:
            task.open_ids = task.node.member_ids(task.launches)
            self._active.update(dict.fromkeys(task.open_ids, task))
        task.state = state
