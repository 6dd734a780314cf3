"""The answers to the calls about the whole cluster: totals, and the map of agents in columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import takewhile
from typing import Final

from croupier.master.core.agents import Agent, AgentState
from croupier.master.core.hold_charges import cluster_use
from croupier.master.core.state import State
from croupier.master.core.tasks import Task, TaskSnapshot
from croupier.master.leadership.leadership import Leadership
from croupier.master.leadership.recovery import agents_missing
from croupier.master.leadership.roster import Roster
from croupier.master.overview.shared import Budget, Made, Shared, Walk
from croupier.master.services.filters import agent_words
from croupier.master.services.paging import Read
from croupier.master.services.views import WallTime, view_task
from croupier.master.services.visibility import Visibility
from croupier.model.access import AccessPolicy
from croupier.model.clock import Clock
from croupier.model.ids import AgentId, FrameworkId
from croupier.model.principal import Principal
from croupier.model.resources import Resources
from croupier.model.task import TaskState
from croupier.v1 import operator_pb2 as pb
from croupier.wire.resources import resources_to_wire

FULL: Final = 1_000
# Other resources have no column.
COLUMNS: Final = ("cpus", "mem", "gpus")

# Tasks that are counted at once.
CHUNK: Final = 500
# Failed tasks in the answer.
MOST_FAILURES: Final = 10


async def make_heatmap(read: Read, caller: Principal) -> Made[pb.GetHeatmapResponse]:
    """Return the map of the agents that the caller may view. Raises as `Leadership.read`."""
    walk, found = Walk(read), _Columns(caller)
    await walk.over(lambda state: sorted(state.agents), found.add)
    return Made(found.to_wire(), walk.cost_s)


class _Columns:
    """Values of the agents that a caller may view."""

    def __init__(self, caller: Principal) -> None:
        self._caller = caller
        self._ids: list[AgentId] = []
        self._states: dict[str, int] = {}
        self._state: list[int] = []
        self._used: tuple[list[int], ...] = tuple([] for _ in COLUMNS)

    def add(self, state: State, ids: Sequence[AgentId]) -> None:
        visible = Visibility(state, self._caller)
        for agent_id in ids:
            agent = state.agents.get(agent_id)
            if agent is None or not visible.has_agent(agent_id):
                continue
            self._ids.append(agent_id)
            self._state.append(self._states.setdefault(state_word(agent), len(self._states)))
            for column, load in zip(self._used, _loads(agent), strict=True):
                column.append(load)

    def to_wire(self) -> pb.GetHeatmapResponse:
        """Return the map; columns without any load are left out, except those of cpus and mem."""
        prefix = _shared_start(self._ids)
        wire = pb.GetHeatmapResponse(
            prefix=prefix,
            agents=[each[len(prefix) :] for each in self._ids],
            states=self._states,
            state=self._state,
        )
        for name, column in zip(COLUMNS, self._used, strict=True):
            if name != "gpus" or any(column):
                wire.used.add(resource=name, per_mille=column)
        return wire


def _shared_start(ids: Sequence[str]) -> str:
    """Return what sorted ids all begin with; nothing of a single one."""
    if len(ids) < 2:
        return ""
    pairs = zip(ids[0], ids[-1], strict=False)
    length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return ids[0][:length]


def _loads(agent: Agent) -> list[int]:
    """Return what tasks use of the agent's total, in thousandths. O(its tasks)."""
    used = [0] * len(COLUMNS)
    for task in agent.tasks.values():
        if task.is_counted:
            amounts = task.info.resources.scalars
            for place, name in enumerate(COLUMNS):
                used[place] += amounts.get(name, 0)
    totals = agent.total.scalars
    return [
        min(FULL, FULL * milli // totals[name]) if milli and totals.get(name) else 0
        for name, milli in zip(COLUMNS, used, strict=True)
    ]


def state_word(agent: Agent) -> str:
    """Return the state of an agent for people: also why it is withheld from offers."""
    return next(agent_words(agent)) if agent.state is AgentState.CONNECTED else agent.state_name


async def make_totals(read: Read, caller: Principal, clock: Clock) -> Made[pb.GetOverviewResponse]:
    """Return the totals that the caller may view, without masters. Raises as `Leadership.read`."""
    walk, wall = Walk(read), WallTime(clock)
    tally = _Tally(caller, wall)
    # Before the live ones, so that a task that is forgotten meanwhile is not counted twice.
    await walk.over(lambda state: list(state.ended), tally.add_ended)
    await walk.over(lambda state: list(state.agents), tally.add_agents)
    await walk.over(lambda state: list(state.frameworks), tally.add_frameworks)
    await walk.over(lambda _: tally.chunks, tally.add_tasks, at_once=1)
    wire = await read(lambda state: _head(state, caller))
    for counts, field in (
        (tally.agents, wire.agents),
        (tally.frameworks, wire.frameworks),
        (Counter({state.name: number for state, number in tally.tasks.items()}), wire.tasks),
    ):
        field.update(counts)
    wire.offers, wire.failed = tally.offers, tally.failed
    wire.failures.extend(
        view_task(task, wall, with_command=False) for task in reversed(tally.failures)
    )
    return Made(wire, walk.cost_s)


def _head(state: State, caller: Principal) -> pb.GetOverviewResponse:
    wire = pb.GetOverviewResponse(master_id=state.master_id, epoch=state.epoch)
    if Visibility(state, caller).has_cluster:
        queries = state.allocator.queries
        used, offered, held = cluster_use(state)
        wire.total.CopyFrom(resources_to_wire(Resources(queries.total)))
        wire.used.CopyFrom(resources_to_wire(used))
        wire.offered.CopyFrom(resources_to_wire(offered))
        wire.held.CopyFrom(resources_to_wire(held))
        wire.agents_missing = agents_missing(state)
    return wire


class _Tally:
    """Numbers of what a caller may view.

    Attributes:
        chunks: tasks that are not counted yet, some at a time, with the owner of their framework.
        failed: the number of failed tasks that are remembered.
        failures: the latest of them, the latest last.
    """

    def __init__(self, caller: Principal, wall: WallTime) -> None:
        self.agents: Counter[str] = Counter()
        self.frameworks: Counter[str] = Counter()
        self.tasks: Counter[TaskState] = Counter()
        self.offers = 0
        self.chunks: list[tuple[str, list[Task]]] = []
        self.failed = 0
        self.failures: list[TaskSnapshot] = []
        self._caller, self._wall = caller, wall

    def add_agents(self, state: State, ids: Sequence[AgentId]) -> None:
        visible = Visibility(state, self._caller)
        for agent_id in ids:
            agent = state.agents.get(agent_id)
            if agent is not None and visible.has_agent(agent_id):
                self.agents[state_word(agent)] += 1

    def add_frameworks(self, state: State, ids: Sequence[FrameworkId]) -> None:
        """Count frameworks and their offers, and note their tasks."""
        visible = Visibility(state, self._caller)
        for framework_id in ids:
            framework = state.frameworks.get(framework_id)
            if framework is None or not visible.has_framework(framework):
                continue
            owner, tasks = framework.owner, list(framework.tasks.values())
            self.frameworks[framework.state.value] += 1
            offers = framework.offers.values()
            self.offers += sum(visible.in_role(offer.role, owner) for offer in offers)
            for start in range(0, len(tasks), CHUNK):
                self.chunks.append((owner, tasks[start : start + CHUNK]))

    def add_tasks(self, state: State, chunks: Sequence[tuple[str, list[Task]]]) -> None:
        visible = Visibility(state, self._caller)
        for owner, tasks in chunks:
            seen = [task for task in tasks if visible.in_role(task.role, owner)]
            self.tasks.update(task.status.state for task in seen)
            self._add_failures(
                # A task that was forgotten meanwhile is missed once.
                [
                    state.snapshot(task)
                    for task in seen
                    if task.status.state.is_failure and task.framework_id in state.frameworks
                ]
            )

    def add_ended(self, state: State, tasks: Sequence[TaskSnapshot]) -> None:
        """Count those of the ended tasks that failed."""
        visible = Visibility(state, self._caller)
        self._add_failures(
            [task for task in tasks if task.status.state.is_failure and visible.has_task(task)]
        )

    def _add_failures(self, failed: list[TaskSnapshot]) -> None:
        """Count failed tasks, and hold the latest: by their agents' clocks, or by their age."""
        if failed:
            self.failed += len(failed)
            self.failures = sorted([*self.failures, *failed], key=self._ended_ms)[-MOST_FAILURES:]

    def _ended_ms(self, task: TaskSnapshot) -> int:
        return task.status.time_ms or self._wall.since_ms(task)


class Surveys:
    """Makes and shares the answers; callers must not change them."""

    def __init__(self, leadership: Leadership, clock: Clock, roster: Roster) -> None:
        """Survey the current term."""
        self._leadership, self._clock, self._roster = leadership, clock, roster
        self._totals: Shared[pb.GetOverviewResponse] = Shared(clock)
        self._heatmaps: Shared[pb.GetHeatmapResponse] = Shared(clock)
        self._budget = Budget(clock)
        # Answers for one policy do not serve under another.
        self._access: AccessPolicy | None = None
        self._policies = 0

    async def overview(self, caller: Principal) -> pb.GetOverviewResponse:
        """Return what totals the caller may view; raises Unavailable or as `Leadership.read`."""
        key, budget = self._key(caller)
        return await self._totals.get(key, lambda: self._make_totals(caller), budget)

    async def heatmap(self, caller: Principal) -> pb.GetHeatmapResponse:
        """Return the map of agents that the caller may view; raises as `overview`."""
        key, budget = self._key(caller)
        return await self._heatmaps.get(
            key, lambda: make_heatmap(self._leadership.read, caller), budget
        )

    async def history(self, caller: Principal) -> pb.GetHistoryResponse:
        """Return what the caller may view of the last hour; raises as `overview`."""
        history = self._leadership.term().history

        def view(state: State) -> pb.GetHistoryResponse:
            return history.view(Visibility(state, caller))

        return await self._leadership.read(view)

    async def _make_totals(self, caller: Principal) -> Made[pb.GetOverviewResponse]:
        made = await make_totals(self._leadership.read, caller, self._clock)
        made.answer.masters.extend(self._roster.masters())
        return made

    def _key(self, caller: Principal) -> tuple[Hashable, Budget | None]:
        """Return the key of an answer, and what it may cost; None: it is for most callers.

        All who may view everything have the same key. Raises NotLeader if this master follows.
        """
        term = self._leadership.term()
        state = term.driver.state
        if state.access is not self._access:
            self._access = state.access
            self._policies += 1
        visible = Visibility(state, caller)
        if visible.has_all and visible.has_cluster:
            return (term.epoch, ""), None
        return (term.epoch, self._policies, caller), self._budget
