"""The totals of the cluster, and numbers of agents, frameworks and tasks by state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from croupier.master.core.agents import Agent, Connected
from croupier.master.core.state import State
from croupier.master.core.tasks import Task, TaskSnapshot
from croupier.master.leadership.recovery import agents_missing
from croupier.master.overview.shared import Made
from croupier.master.overview.slices import Walk
from croupier.master.services.paging import Read
from croupier.master.services.views import WallTime, view_task
from croupier.master.services.visibility import Visibility
from croupier.model.clock import Clock
from croupier.model.ids import AgentId, FrameworkId
from croupier.model.principal import Principal
from croupier.model.resources import Resources
from croupier.model.task import TaskState
from croupier.v1 import operator_pb2 as pb
from croupier.wire.resources import resources_to_wire

# Tasks that are counted at once.
CHUNK: Final = 500
# Failed tasks in the answer.
MOST_FAILURES: Final = 10


def state_word(agent: Agent) -> str:
    """Return the state of an agent for people: also why it is withheld from offers."""
    if not isinstance(agent.state, Connected):
        return agent.state.name
    if agent.drain is not None:
        return "drained" if agent.is_empty else "draining"
    if agent.deactivated:
        return "deactivated"
    return "unhealthy" if agent.problems else agent.state.name


async def make_totals(read: Read, caller: Principal, clock: Clock) -> Made[pb.GetOverviewResponse]:
    """Return the totals that the caller may view, without masters.

    Raises:
        CroupierError: as `Leadership.read`.
    """
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
        used, offered = queries.held()
        wire.total.CopyFrom(resources_to_wire(Resources(queries.total)))
        wire.used.CopyFrom(resources_to_wire(used))
        wire.offered.CopyFrom(resources_to_wire(offered))
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
        """Count agents."""
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
            self.frameworks[framework.state.name] += 1
            offers = framework.offers.values()
            self.offers += sum(visible.in_role(offer.role, owner) for offer in offers)
            for start in range(0, len(tasks), CHUNK):
                self.chunks.append((owner, tasks[start : start + CHUNK]))

    def add_tasks(self, state: State, chunks: Sequence[tuple[str, list[Task]]]) -> None:
        """Count tasks."""
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
            latest = sorted([*self.failures, *failed], key=self._ended_ms)
            self.failures = latest[-MOST_FAILURES:]

    def _ended_ms(self, task: TaskSnapshot) -> int:
        return task.status.time_ms or self._wall.since_ms(task)
