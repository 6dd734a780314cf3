"""Gangs that start again although agents are lost, lie, or have lost records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.master.core import calls
from croupier.master.core.effects import SessionId
from croupier.master.core.events import AgentTask
from croupier.master.core.framework_commands import OperatorKill
from croupier.master.core.messages import Updated
from croupier.master.core.tasks import Task
from croupier.model.agent_orders import KillTask
from croupier.model.gang import ANY_AGENTS, GangPlacement
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.task import MASTER_SEQUENCE, Reason, TaskState, TaskStatus
from tests.harness.explained import explained
from tests.harness.world import World, in_gang, make_task

TOTAL = "cpus:4;mem:8GB"
APART = GangPlacement(spread="host")


class Started(World):
    """Two agents, of which some run a gang that may start again."""

    def __init__(
        self, *parts: str, placement: GangPlacement = ANY_AGENTS, restarts: int = 5
    ) -> None:
        super().__init__()
        for name in ("a1", "a2"):
            self.back(name)
        self.session = self.framework("ads", suppressed=True)
        tasks = [make_task(f"t{number}") for number in range(len(parts))]
        gang = in_gang("g", *tasks, parts=parts, placement=placement, restarts=restarts)
        self.call(self.session, calls.Submit(gang))

    def back(self, name: str, *tasks: AgentTask, incomplete: bool = False) -> SessionId:
        """Register an agent, mostly again."""
        return self.agent(
            TOTAL,
            name,
            agent_id=name,
            features="gangs,requeue",
            tasks=tasks,
            incomplete=incomplete,
        )

    def task(self, number: int) -> Task:
        """Return a member."""
        return self.state.frameworks[self.framework_id(self.session)].tasks[TaskId(f"t{number}")]

    def host(self, number: int) -> SessionId:
        """Return the session of the agent of a member."""
        session = self.state.agents[self.task(number).agent_id].session
        assert session is not None
        return session

    def tell(self, number: int, state: TaskState, sequence: int) -> None:
        """Send an update of a member."""
        self.report(self.host(number), *self.task(number).key, state, sequence)

    @property
    def states(self) -> set[TaskState]:
        """The states of all members."""
        framework = self.state.frameworks[self.framework_id(self.session)]
        return {task.state for task in framework.tasks.values()}


@pytest.mark.parametrize("parts", [("member", "sidecar"), ("sidecar", "member")])
@pytest.mark.parametrize("comes_back", [False, True])
def test_a_sidecar_on_the_agent_of_a_lost_member_returns_with_it(
    parts: tuple[str, ...], comes_back: bool
) -> None:
    world = Started(*parts)
    name = world.task(0).agent_id
    assert world.task(1).agent_id == name
    if comes_back:
        world.back(name, incomplete=True)
        assert world.states == {TaskState.STAGING}
        again = [world.task(number).requeue for number in (0, 1)]
        assert [each and each.count for each in again] == [1, 1]
    else:
        world.end_session(world.host(0))
        world.pass_time(200)
        assert world.states == {TaskState.QUEUED}


def test_a_finished_member_that_its_agent_has_lost_starts_again_with_the_others() -> None:
    world = Started("member", "member")
    world.tell(0, TaskState.FINISHED, 1)
    world.back(world.task(0).agent_id, incomplete=True)
    assert world.states == {TaskState.STAGING}


def test_what_an_agent_makes_up_leaves_numbers_for_the_next_run() -> None:
    world = Started("member", "member", placement=APART)
    liar = world.task(0).agent_id
    world.tell(0, TaskState.FAILED, MASTER_SEQUENCE - 1)
    world.tell(1, TaskState.KILLED, 1)
    first = world.task(0).sequence + 1
    assert first < MASTER_SEQUENCE // 2
    assert world.task(0).agent_id != liar
    world.tell(0, TaskState.RUNNING, first)
    assert world.task(0).state is TaskState.RUNNING


def test_a_lost_agent_that_has_numbered_on_does_not_end_the_gang() -> None:
    world = Started("member", "member", placement=APART)
    task = world.task(1)
    name, info = task.agent_id, task.info
    world.end_session(world.host(1))
    world.pass_time(200)
    assert world.states == {TaskState.QUEUED}
    status = TaskStatus(*task.key, name, TaskState.RUNNING, sequence=1_700_000_000_000)
    listed = AgentTask(task.framework_id, info, status, (status,), Role("ads"))
    host = world.back(name, listed, incomplete=True)
    assert world.states == {TaskState.QUEUED}
    assert KillTask(*task.key, None, Reason.AGENT_REREGISTERED) in world.sent[host]


@pytest.mark.parametrize("state", [None, TaskState.RUNNING, TaskState.KILLED])
def test_a_gang_starts_on_the_agent_that_it_lost_once_no_run_is_left_there(
    state: TaskState | None,
) -> None:
    world = Started("member", "member", placement=APART)
    task, name = world.task(1), world.task(1).agent_id
    world.tell(1, TaskState.RUNNING, 1)
    status = TaskStatus(*task.key, name, state or TaskState.RUNNING, sequence=2)
    listed = AgentTask(task.framework_id, task.info, status, (status,), Role("ads"))
    world.pass_time(200)
    assert world.states == {TaskState.QUEUED}
    world.restart()
    world.framework("ads", framework_id=task.framework_id, suppressed=True)
    world.back("a1" if name == "a2" else "a2")
    host = world.back(name, *([listed] if state else []))
    if state is TaskState.RUNNING:
        assert world.states == {TaskState.QUEUED}
        world.report(host, *task.key, TaskState.KILLED, 3)
    assert world.states == {TaskState.STAGING}
    assert {world.task(number).agent_id for number in (0, 1)} == {"a1", "a2"}


@pytest.mark.parametrize("fails_over", [False, True])
def test_an_agent_that_is_back_with_a_run_of_a_forgotten_member_ends_no_other(
    fails_over: bool,
) -> None:
    world = Started("member", "member", placement=APART, restarts=1)
    task, name = world.task(1), world.task(1).agent_id
    status = TaskStatus(*task.key, name, TaskState.RUNNING, sequence=1)
    listed = AgentTask(task.framework_id, task.info, status, (status,), Role("ads"))
    world.report(world.host(1), *task.key, TaskState.RUNNING, 1)
    world.pass_time(200)
    world.session = world.framework(
        "ads", framework_id=task.framework_id, client_id="c2", suppressed=True
    )
    world.back("a1" if name == "a2" else "a2")
    world.back("a3")
    assert world.states == {TaskState.STAGING}
    world.tell(1, TaskState.FINISHED, task.sequence + 1)
    world.call(world.session, calls.Acknowledge(((task.agent_id, task.task_id, task.sequence),)))
    if fails_over:
        world.restart()
    host = world.back(name, listed)
    assert KillTask(*task.key, None, Reason.AGENT_REREGISTERED) in world.sent[host]
    world.report(host, *task.key, TaskState.KILLED, 2)
    assert world.states == {TaskState.STAGING}
    assert world.task(0).kill is None


def test_a_returned_member_ends_after_a_failover_if_another_is_being_killed() -> None:
    world = Started("member", "member")
    world.tell(0, TaskState.FAILED, 1)
    assert world.task(0).state is TaskState.QUEUED
    world.call(world.session, calls.Kill(TaskId("t1"), None))
    task = world.task(1)
    world.restart()
    world.session = world.framework("ads", framework_id=task.framework_id, suppressed=True)
    assert world.task(0).state is TaskState.KILLED
    world.back(task.agent_id)
    assert world.states == {TaskState.KILLED}


def test_the_end_of_a_found_member_ends_the_others_that_are_found() -> None:
    world = World()
    tasks = in_gang("g", make_task("t0"), make_task("t1"), restarts=1)
    ends = (TaskState.FAILED, TaskState.RUNNING)
    found = []
    for task, state in zip(tasks, ends, strict=True):
        status = TaskStatus(FrameworkId("F"), task.task_id, AgentId("a1"), state, sequence=2)
        assert task.gang is not None
        placed = replace(task, gang=replace(task.gang, hosts=("h1", "h1")))
        found.append(AgentTask(status.framework_id, placed, status, (status,), Role("ads")))
    host = world.agent(TOTAL, "h1", agent_id="a1", tasks=tuple(found))
    assert KillTask(FrameworkId("F"), TaskId("t1"), None, Reason.GANG_ENDED) in world.sent[host]


def test_an_operator_kills_a_member_whose_end_is_kept_back() -> None:
    world = Started("member", "member")
    world.tell(0, TaskState.FINISHED, 1)
    assert world.task(0).is_kept_back
    before = len(world.sent[world.session])
    world.do(OperatorKill(1, TaskId("t0"), FrameworkId(""), None))
    (told,) = world.sent[world.session][before:]
    assert isinstance(told, Updated)
    assert [(each.task_id, each.state) for each in told.statuses] == [("t0", TaskState.FINISHED)]
    world.check_recovery()
    # Its gang does not start again.
    world.tell(1, TaskState.FAILED, 2)
    assert world.states == {TaskState.FINISHED, TaskState.FAILED}


def test_a_gang_that_waits_for_its_runs_to_end_is_explained() -> None:
    world = Started("member", "member")
    world.tell(0, TaskState.FAILED, 1)
    assert world.states == {TaskState.QUEUED, TaskState.STAGING}
    framework_id = world.framework_id(world.session)
    (why,) = explained(world.state, framework_id, AgentId(""), world.now).reasons
    assert (why.cause, why.agents) == ("gang", 0)
    assert why.detail == "1 queued task waits until the other runs of its gang have ended"
    world.tell(1, TaskState.KILLED, 1)
    assert world.states == {TaskState.STAGING}
    (why,) = explained(world.state, framework_id, AgentId(""), world.now).reasons
    assert why.cause == "demand is met"
