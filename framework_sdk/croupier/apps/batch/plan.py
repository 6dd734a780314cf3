"""The tasks of a job and the graph of their dependencies. Pure.

Rule: a plan has no cycle. The edges between two arrays go through one barrier, which ends when all
tasks of the first array have ended, so their number grows with the tasks and not with their
product.
"""

from __future__ import annotations

import difflib
import hashlib
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Final

from croupier.apps.batch.job import PLACEHOLDER, BatchJob, Step
from croupier.model.errors import InvalidRequest

_SHOWN: Final = 12


@dataclass(slots=True)
class Node:
    """A task, or the barrier behind an array.

    Attributes:
        index: its number in the plan; barriers follow the tasks.
        position: of the task in its array; -1 for a barrier.
        needs: the number of nodes whose end it waits for.
        dependents: nodes that wait for it, and whether they need it to succeed.
    """

    index: int
    step: Step
    position: int
    needs: int = 0
    dependents: list[tuple[int, bool]] = field(default_factory=list)

    @property
    def is_barrier(self) -> bool:
        """Whether it is a barrier."""
        return self.position < 0

    @property
    def name(self) -> str:
        """The task's name, such as `work[3]`; of a barrier: its array."""
        return self.step.name if self.is_barrier else self.step.task_name(self.position)

    def task_id(self, launch: int) -> str:
        """Return the task id of its launch of this number, from 1; no two are equal."""
        return f"{self.step.name}.{self.position}.{launch}"

    def member_ids(self, launch: int) -> list[str]:
        """Return the task ids of a launch: its own, or those of the members of its gang by rank."""
        task_id = self.task_id(launch)
        if self.step.gang is None:
            return [task_id]
        return [f"{task_id}.{rank}" for rank in range(self.step.nodes)]


class JobPlan:
    """The graph of a job.

    Attributes:
        nodes: all tasks in the order of the file, then the barriers.
        count: the number of tasks.
        order: the nodes so that each comes after those that it waits for.
    """

    def __init__(self, job: BatchJob) -> None:
        """Build the graph.

        Raises InvalidRequest if a dependency names no task, or tasks wait for each other.
        """
        self.job = job
        self.nodes: list[Node] = []
        self._first: dict[str, int] = {}
        self._positions: dict[str, dict[str, int]] = {}
        self._barriers: dict[str, int] = {}
        self._steps = {step.name: step for step in job.steps}
        for step in job.steps:
            self._first[step.name] = len(self.nodes)
            self.nodes += [Node(len(self.nodes) + n, step, n) for n in range(step.count)]
        self.count = len(self.nodes)
        for step in job.steps:
            self._connect(step, "after", step.after, must_succeed=True)
            self._connect(step, "after_any", step.after_any, must_succeed=False)
        sorter = TopologicalSorter({node.index: () for node in self.nodes})
        for node in self.nodes:
            for target, _ in node.dependents:
                sorter.add(target, node.index)
        try:
            self.order = [self.nodes[index] for index in sorter.static_order()]
        except CycleError as error:
            raise InvalidRequest(self._cycle_text(error.args[1])) from None

    @property
    def tasks(self) -> list[Node]:
        """All tasks, in the order of the file."""
        return self.nodes[: self.count]

    def digest(self) -> str:
        """Return a text that changes with the names and dependencies of the tasks."""
        hashed = hashlib.sha256()
        for step in self.job.steps:
            parts = (step.name, step.values, step.after, step.after_any)
            hashed.update(f"{parts!r}\n".encode())
        return hashed.hexdigest()

    def _connect(
        self, step: Step, key: str, references: tuple[str, ...], *, must_succeed: bool
    ) -> None:
        for number, reference in enumerate(references):
            place = f"tasks.{step.name}.{key}[{number}]"
            is_same = step.values is not None and PLACEHOLDER in reference
            sources = None if is_same else self._sources(reference, place)
            for position in range(step.count):
                source = (
                    self._sources(step.filled(reference, position), place) if is_same else sources
                )
                assert source is not None
                self._add_edge(source, self._first[step.name] + position, must_succeed)

    def _add_edge(self, source: int, target: int, must_succeed: bool) -> None:
        self.nodes[source].dependents.append((target, must_succeed))
        self.nodes[target].needs += 1

    def _sources(self, reference: str, place: str) -> int:
        """Return the node that a reference means: a task, or the barrier of an array."""
        name, bracket, value = reference.partition("[")
        step = self._steps.get(name)
        if step is None:
            near = difflib.get_close_matches(name, self._steps, n=1, cutoff=0.6)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InvalidRequest(f"{place}: there is no task {name!r}{hint}")
        if not bracket:
            return self._first[name] if step.values is None else self._barrier(step)
        if step.values is None:
            raise InvalidRequest(f"{place}: {name!r} is no array")
        if name not in self._positions:
            self._positions[name] = {text: at for at, text in enumerate(step.values)}
        position = self._positions[name].get(value.removesuffix("]"))
        if position is None or not value.endswith("]"):
            raise InvalidRequest(f"{place}: {name!r} has no task {reference[:80]!r}")
        return self._first[name] + position

    def _barrier(self, step: Step) -> int:
        if step.name not in self._barriers:
            barrier = Node(len(self.nodes), step, -1)
            self.nodes.append(barrier)
            self._barriers[step.name] = barrier.index
            first = self._first[step.name]
            for position in range(step.count):
                self._add_edge(first + position, barrier.index, must_succeed=True)
        return self._barriers[step.name]

    def _cycle_text(self, cycle: list[int]) -> str:
        """Return the error for nodes that wait for each other; the last one is the first again."""
        nodes = [self.nodes[index] for index in cycle[1:]]
        names = [node.name for node in nodes if not node.is_barrier]
        smallest = names.index(min(names))
        names = names[smallest:] + names[:smallest]
        shown = names[:_SHOWN] + (["..."] if len(names) > _SHOWN else [names[0]])
        return f"tasks wait for each other: {' before '.join(shown)}"
