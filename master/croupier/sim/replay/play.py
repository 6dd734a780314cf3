"""Run the work of a history in the simulator: the real core, and simulated peers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import cycle

from croupier.master.allocator import Allocator, policies
from croupier.master.core.events import AgentStopped
from croupier.master.core.facts import Fact, TaskMoved
from croupier.master.core.role_commands import UpdateRoles
from croupier.master.core.state import State
from croupier.model.errors import CroupierError
from croupier.model.ids import FrameworkId, TaskId
from croupier.model.task import TaskState
from croupier.sim.agent import SimulatedAgent, TaskKey
from croupier.sim.framework import Habits, SimulatedFramework
from croupier.sim.kernel import Kernel
from croupier.sim.machine import Machine, Size
from croupier.sim.replay.change import Change
from croupier.sim.replay.history import AgentStay, History
from croupier.sim.replay.ledger import Figures, Ledger, Party, Waits, WaitTally, parties_of
from croupier.sim.replay.workload import Batch, TracePart, parts_of
from croupier.sim.work import Work

_PATIENCE_S = 365 * 24 * 3600.0
# Bounds of endless work.
_MOST_TASKS = 5_000_000
_MOST_BACKLOG = 20_000


def play(history: History, change: Change, progress: Callable[[float], None]) -> Figures:
    """Return the figures of the history's work with `change`; raises CroupierError."""
    return _Play(history, change).run(progress)


class _Agent(SimulatedAgent):
    """An agent that may leave permanently."""

    def leave(self) -> None:
        """Stop; the agent's tasks are lost."""
        if self._session is None:
            return
        session, self._session = self._session, None
        self._tasks.clear()
        self.machine.clear(self.kernel.now)
        self.kernel.end_session(session)
        self.kernel.step(AgentStopped(session, "it left"))


class _Actor:
    """A simulated framework that plays one part of the work."""

    def __init__(self, play: _Play, number: int, part: TracePart) -> None:
        self.part = part
        self.works: list[tuple[Work, bool]] = []
        self._play = play
        self._is_leaving = False
        self.framework = SimulatedFramework(
            play.kernel,
            f"p{number}",
            part.role,
            play.works,
            Habits(declares=part.declares),
            self._on_end,
        )

    def come(self) -> None:
        """Subscribe, and schedule the work."""
        self.framework.connect()
        at = self._play.kernel.at
        for batch in self.part.batches:
            at(batch.at, partial(self._submit, batch))
        for endless in self.part.endless:
            at(endless.at, partial(self._begin, endless))
        if self.part.left is not None:
            at(self.part.left, self._leave)

    def _submit(self, batch: Batch) -> None:
        works = [Work(batch.shape, seconds) for seconds in batch.seconds]
        self.works += [(work, batch.was_running) for work in works]
        self.framework.submit(works)

    def _begin(self, endless: Batch) -> None:
        seconds = cycle(endless.seconds)
        backlog = min(max(self._play.capacity(endless), 1), _MOST_BACKLOG)
        made = [Work(endless.shape, next(seconds), job=seconds) for _ in range(backlog)]
        self.framework.submit(made)

    def _on_end(self, work: Work) -> None:
        if isinstance(work.job, cycle) and not self._is_leaving:
            self.framework.submit([Work(work.shape, next(work.job), job=work.job)])
        elif self._is_leaving:
            self._leave()

    def _leave(self) -> None:
        self._is_leaving = True
        is_done = not self.framework.waiting and not self.framework.running
        if (self.part.endless or is_done) and not self.framework.has_left:
            self.framework.withdraw()
            self.framework.leave()


class _Play:
    def __init__(self, history: History, change: Change) -> None:
        self._history = history
        head = history.head
        name = head.policy if change.policy is None else change.policy
        roles = change.roles(history.roles)
        self._role_changes = change.over_time(roles, history.role_changes)
        allocator = Allocator(policies.make(name, head.seed), head.rules, roles)
        settings = replace(head.settings, agent_timeout_s=_PATIENCE_S, suspect_beats=float("inf"))
        self.kernel = Kernel(State("replay", settings, allocator))
        self.kernel.on_fact = self._on_fact
        self.works: dict[TaskKey, Work] = {}
        self._seconds = history.end - history.start
        self._ledger = Ledger(0.0, self._seconds)
        self._holding: dict[TaskKey, tuple[list[Party], Mapping[str, int]]] = {}
        self._tally = WaitTally()
        self._tasks = 0
        parts = enumerate(parts_of(history))
        self._actors = {f"p{number}": _Actor(self, number, part) for number, part in parts}

    def run(self, progress: Callable[[float], None]) -> Figures:
        start, at = self._history.start, self.kernel.at
        for stay in self._history.agents:
            at(max(stay.came - start, 0.0), partial(self._agent_comes, stay))
        for at_s, changed in self._role_changes:
            at(at_s - start, partial(self.kernel.step, UpdateRoles(0, (changed,), force=True)))
        for actor in self._actors.values():
            at(actor.part.came, actor.come)
        self.kernel.run(self._seconds, lambda now: progress(now / (self._seconds or 1.0)))
        return self._ledger.figures(self._waits())

    def capacity(self, endless: Batch) -> int:
        """Return how many tasks of the shape fit on all agents of the history."""
        unit = endless.shape.ask
        return sum(unit.units_within(stay.total, _MOST_BACKLOG) for stay in self._history.agents)

    def _agent_comes(self, stay: AgentStay) -> None:
        size = Size(stay.total["cpus"], stay.total["mem"])
        agent = _Agent(
            self.kernel, stay.hostname, stay.total, Machine(size), self.works, dict(stay.attributes)
        )
        agent.features = stay.features
        self._ledger.supply(self.kernel.now, stay.total.scalars, 1)
        agent.connect()
        if stay.left is not None:
            self.kernel.at(stay.left - self._history.start, partial(self._agent_goes, agent))

    def _agent_goes(self, agent: _Agent) -> None:
        agent.leave()
        self._ledger.supply(self.kernel.now, agent.total.scalars, -1)

    def _on_fact(self, fact: Fact) -> None:
        if not isinstance(fact, TaskMoved):
            return
        key = (fact.framework_id, fact.task_id)
        if fact.state is TaskState.STAGING:
            self._on_launch(*key)
        elif fact.state.is_terminal and key in self._holding:
            parties, amounts = self._holding.pop(key)
            self._ledger.hold(self.kernel.now, parties, amounts, -1)

    def _on_launch(self, framework_id: FrameworkId, task_id: TaskId) -> None:
        self._tasks += 1
        if self._tasks > _MOST_TASKS:
            raise CroupierError(f"the work has more than {_MOST_TASKS} tasks")
        framework = self.kernel.state.frameworks[framework_id]
        task = framework.tasks[task_id]
        parties = parties_of(task.role, self._actors[framework.name].part.framework_id)
        self._tally.launched(parties)
        self._holding[framework_id, task_id] = (parties, task.info.resources.scalars)
        self._ledger.hold(self.kernel.now, parties, task.info.resources.scalars, 1)

    def _waits(self) -> dict[Party, Waits]:
        for actor in self._actors.values():
            parties = parties_of(actor.part.role, actor.part.framework_id)
            for work, was_running in actor.works:
                if work.started_at is None:
                    self._tally.waiting(parties)
                elif not was_running:
                    self._tally.waited(parties, work.started_at - work.submitted_at)
        return self._tally.waits()
