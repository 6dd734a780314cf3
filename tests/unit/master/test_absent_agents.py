"""Tasks of absent agents count for their role and framework."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from croupier.master.allocator import Allocator
from croupier.master.core import calls
from croupier.master.core.agent_commands import MarkGone, OperateAgent
from croupier.master.core.effects import Answer, SessionId
from croupier.master.core.events import AgentTask, Register
from croupier.master.core.records import AgentRecord, Registry
from croupier.master.core.role_commands import UpdateRoles
from croupier.master.core.roles import RoleChange, RolePart
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.model.agent_orders import KillTask
from croupier.model.errors import Conflict
from croupier.model.ids import Role, TaskId
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from croupier.model.task import Source, TaskState, TaskStatus
from tests.harness.restarting import ALL, Scene
from tests.harness.role_statuses import role_statuses
from tests.harness.world import CLUSTER, World, make_task

LIM = Role("lim")
SMALL = "cpus:1;mem:1GB"
LIMIT = RoleSettings(limit={"cpus": 2000})


class Limited(Scene):
    """Role `lim` uses its limit of two cpus on an agent with four, and the master restarts."""

    is_older_release = False

    def __init__(self) -> None:
        super().__init__(Settings())
        self.end_session(self.session)
        self.set_role(LIMIT)
        self.session = self.framework("lim", demand=SMALL, count=4)
        self.owner = self.framework_id(self.session)
        tasks = [make_task(f"t{n}") for n in (1, 2)]
        assert [v.error for v in self.accept(self.session, *tasks).tasks] == [None, None]
        for task in tasks:
            self.report(self.host, self.owner, task.task_id, TaskState.RUNNING, 1)
        self.restart()
        self.demand_more()

    def registry(self) -> Registry:
        """The registry; with `is_older_release`, that of an older release without totals."""
        registry = super().registry()
        if self.is_older_release:
            for agent_id, record in registry.agents.items():
                registry.agents[agent_id] = AgentRecord(agent_id, record.hostname)
        return registry

    def demand_more(self) -> None:
        self.session = self.framework(
            "lim", SMALL, 4, framework_id=self.owner, failover_timeout_s=9999.0
        )

    def set_role(self, settings: RoleSettings, role: Role = LIM) -> object:
        changes = (RoleChange(role, settings, (RolePart.LIMIT, RolePart.GUARANTEE)),)
        (answer,) = (e for e in self.do(UpdateRoles(1, changes)) if isinstance(e, Answer))
        return answer.result

    def returns(self, *task_ids: str, total: str = ALL, incomplete: bool = False) -> None:
        """Register the agent with these running tasks."""
        tasks = []
        for task_id in map(TaskId, task_ids):
            state, source = TaskState.RUNNING, Source.EXECUTOR
            status = TaskStatus(self.owner, task_id, self.host_id, state, source, sequence=1)
            tasks.append(AgentTask(self.owner, make_task(task_id), status, (), LIM))
        self.host = SessionId(next(self._sessions))
        of, listed = Resources.parse(total), tuple(tasks)
        event = Register(
            self.host, self.host_id, "host", of, {}, tasks=listed, incomplete=incomplete
        )
        self.do(event)

    def used(self) -> str:
        return str(role_statuses(self.state)[LIM].used)

    def offered(self, session: SessionId | None = None) -> str:
        found = [offer.resources for offer in self.offers(session or self.session)]
        return " ".join(map(str, found))


def test_limit_counts_tasks_of_an_absent_agent() -> None:
    scene = Limited()
    scene.agent(ALL, "other")
    assert (scene.used(), scene.offered()) == ("cpus:2;mem:2GB", "")
    scene.returns("t1", "t2")
    assert (scene.used(), scene.offered()) == ("cpus:2;mem:2GB", "")


def test_shares_count_tasks_and_capacity_of_absent_agents() -> None:
    scene = Limited()
    assert role_statuses(scene.state)[LIM].share == Fraction(2, 4)
    scene.set_role(RoleSettings())
    rival = scene.framework("rival", demand=SMALL, count=4)
    scene.agent(ALL, "other")
    # Two of the six cpus that are used or free are on the absent agent.
    assert scene.offered(rival) == "cpus:3;mem:3GB"
    assert scene.offered() == "cpus:1;mem:1GB"
    assert role_statuses(scene.state)[LIM].share == Fraction(3, 8)


def test_guarantee_counts_tasks_of_absent_agents() -> None:
    scene = Limited()
    scene.set_role(RoleSettings(guarantee={"cpus": 2000}))
    scene.agent("cpus:1;mem:1GB", "other", allocate=False)
    rival = scene.framework("rival", demand=SMALL, count=4)
    assert (scene.offered(rival), scene.offered()) == ("cpus:1;mem:1GB", "")


def test_limit_below_absent_usage_needs_force() -> None:
    scene = Limited()
    lower = RoleSettings(limit={"cpus": 1000})
    refusal = scene.set_role(lower)
    assert isinstance(refusal, Conflict)
    assert "cpus:2" in str(refusal)


def test_agent_without_a_saved_total_counts_what_its_tasks_hold() -> None:
    """Records of older releases have no total."""

    class Older(Limited):
        is_older_release = True

    scene = Older()
    assert role_statuses(scene.state)[LIM].share == 1
    scene.agent(ALL, "other")
    assert (scene.used(), scene.offered()) == ("cpus:2;mem:2GB", "")
    scene.returns("t1", "t2")
    assert role_statuses(scene.state)[LIM].share == Fraction(2, 8)


class WithPorts(World):
    """Tasks with and without resources that count in shares; the master restarts."""

    def __init__(self, *resources: str) -> None:
        super().__init__(state=State(f"{CLUSTER}-1", Settings(), Allocator()))
        self.total = f"{ALL};ports:[1-9]"
        self.host = self.agent(self.total)
        self.host_id = self.agent_id(self.host)
        self.session = self.framework()
        self.owner = self.framework_id(self.session)
        self.tasks = [
            replace(make_task(f"t{n}"), resources=Resources.parse(each))
            for n, each in enumerate(resources)
        ]
        verdict = self.accept(self.session, *self.tasks)
        assert all(each.error is None for each in verdict.tasks)
        for task in self.tasks:
            self.report(self.host, self.owner, task.task_id, TaskState.RUNNING, 1)
        self.restart()

    def returns(self, state: TaskState) -> None:
        listed = []
        for task in self.tasks:
            ran = TaskStatus(
                self.owner,
                task.task_id,
                self.host_id,
                TaskState.RUNNING,
                Source.EXECUTOR,
                sequence=1,
            )
            latest = replace(ran, state=state, sequence=2) if state.is_terminal else ran
            waiting = (latest,) if state.is_terminal else ()
            listed.append(AgentTask(self.owner, task, latest, waiting))
        self.host = SessionId(next(self._sessions))
        of = Resources.parse(self.total)
        self.do(Register(self.host, self.host_id, "host", of, {}, tasks=tuple(listed)))


@pytest.mark.parametrize("state", [TaskState.RUNNING, TaskState.FINISHED])
@pytest.mark.parametrize("resources", [("ports:[1-2]",), ("cpus:1", "ports:[1-2]")])
def test_task_with_ports_only_is_decided_when_its_agent_returns(
    resources: tuple[str, ...], state: TaskState
) -> None:
    scene = WithPorts(*resources)
    scene.returns(state)
    is_running = state is TaskState.RUNNING
    held = [task for task in scene.state.frameworks[scene.owner].tasks.values() if task.is_active]
    assert len(held) == (len(resources) if is_running else 0)


def test_relaunched_task_counts_once() -> None:
    scene = Limited()
    scene.returns("t1")
    assert [task.task_id for task in scene.launches(scene.host)] == ["t2"]
    assert (scene.used(), scene.offered()) == ("cpus:2;mem:2GB", "")


def test_lost_task_does_not_count() -> None:
    scene = Limited()
    scene.returns("t1", incomplete=True)
    assert (scene.used(), scene.offered()) == ("cpus:1;mem:1GB", "cpus:1;mem:1GB")


def test_dropped_task_does_not_count() -> None:
    scene = Limited()
    scene.returns(total="cpus:1;mem:1GB")
    assert [task.task_id for task in scene.launches(scene.host)] == ["t1"]
    assert scene.used() == "cpus:1;mem:1GB"


def test_returned_agent_that_leaves_counts_as_any_other() -> None:
    scene = Limited()
    scene.returns("t1", "t2")
    scene.end_session(scene.host)
    scene.agent(ALL, "other")
    assert (scene.used(), scene.offered()) == ("cpus:2;mem:2GB", "")


@pytest.mark.parametrize("ended_by", ["time", "operator"])
def test_tasks_of_a_removed_agent_do_not_count(ended_by: str) -> None:
    scene = Limited()
    if ended_by == "time":
        scene.end_session(scene.session)
        scene.pass_time(scene.state.settings.return_timeout_s)
        scene.demand_more()
    else:
        scene.do(OperateAgent(1, scene.host_id, MarkGone(), "someone"))
    assert scene.used() == ""
    other = scene.agent(ALL, "other")
    assert (scene.offered(), scene.state.allocator.queries.total) == (
        "cpus:2;mem:2GB",
        Resources.parse(ALL).scalars,
    )
    assert scene.agent_id(other) != scene.host_id


def test_tasks_of_a_removed_framework_count_until_their_agent_returns() -> None:
    scene = Limited()
    scene.call(scene.session, calls.Teardown())
    heir = scene.framework("lim", demand=SMALL, count=4)
    scene.agent(ALL, "other")
    assert scene.offered(heir) == ""
    scene.returns("t1", "t2")
    assert scene.used() == "cpus:2;mem:2GB"


def test_returned_task_of_an_unreachable_agent_is_absent_after_failover() -> None:
    scene = Limited()
    scene.pass_time(scene.state.settings.return_timeout_s)
    scene.returns("t1", "t2")
    scene.restart()
    scene.demand_more()
    assert scene.used() == "cpus:2;mem:2GB"
    scene.call(scene.session, calls.Teardown())
    assert scene.used() == "cpus:2;mem:2GB"
    scene.returns("t1", "t2")
    kills = [m for m in scene.sent[scene.host] if isinstance(m, KillTask)]
    assert [kill.task_id for kill in kills] == ["t1", "t2"]


def test_total_is_saved_only_when_it_changes() -> None:
    scene = Scene()
    saved = [each for each in scene.saved if isinstance(each, AgentRecord)]
    assert [each.total for each in saved] == [Resources.parse(ALL)]
    scene.restart()
    scene.agent_back()
    assert [each for each in scene.saved if isinstance(each, AgentRecord)] == saved
    ports = Resources.parse("cpus:5;mem:4GB;ports:[1-2]")
    scene.do(Register(SessionId(99), scene.host_id, "host", ports, {}))
    wanted = replace(saved[0], total=Resources(ports.scalars))
    assert [each for each in scene.saved if isinstance(each, AgentRecord)] == [*saved, wanted]
