"""Tasks of absent agents count for their role; `scenarios/absent_agents.txt` tells most of it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from croupier.master.allocator import Allocator
from croupier.master.core import calls
from croupier.master.core.effects import Answer, SessionId
from croupier.master.core.events import AgentTask, Register
from croupier.master.core.records import AgentRecord, Registry
from croupier.master.core.role_commands import UpdateRoles
from croupier.master.core.roles import RoleChange, RolePart
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
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
        self.session = self.framework("lim", SMALL, 4, framework_id=self.owner)

    def registry(self) -> Registry:
        """The registry; with `is_older_release`, that of an older release without totals."""
        registry = super().registry()
        if self.is_older_release:
            for agent_id, record in registry.agents.items():
                registry.agents[agent_id] = AgentRecord(agent_id, record.hostname)
        return registry

    def set_role(self, settings: RoleSettings) -> object:
        changes = (RoleChange(LIM, settings, (RolePart.LIMIT, RolePart.GUARANTEE)),)
        (answer,) = (e for e in self.do(UpdateRoles(1, changes)) if isinstance(e, Answer))
        return answer.result

    def returns(self, *task_ids: str) -> None:
        """Register the agent with these running tasks."""
        tasks = []
        for task_id in map(TaskId, task_ids):
            place = (self.owner, task_id, self.host_id)
            status = TaskStatus(*place, TaskState.RUNNING, Source.EXECUTOR, sequence=1)
            tasks.append(AgentTask(self.owner, make_task(task_id), status, (), LIM))
        self.host = self.agent(ALL, agent_id=self.host_id, tasks=tuple(tasks))

    def used(self) -> str:
        return str(role_statuses(self.state)[LIM].used)

    def offered(self, session: SessionId) -> str:
        return " ".join(str(offer.resources) for offer in self.offers(session))


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
    assert (scene.used(), scene.offered(scene.session)) == ("cpus:2;mem:2GB", "")
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
            place = (self.owner, task.task_id, self.host_id)
            ran = TaskStatus(*place, TaskState.RUNNING, Source.EXECUTOR, sequence=1)
            latest = replace(ran, state=state, sequence=2) if state.is_terminal else ran
            waiting = (latest,) if state.is_terminal else ()
            listed.append(AgentTask(self.owner, task, latest, waiting))
        self.agent(self.total, agent_id=self.host_id, tasks=tuple(listed))


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


def test_tasks_of_a_removed_framework_count_until_their_agent_returns() -> None:
    scene = Limited()
    scene.call(scene.session, calls.Teardown())
    heir = scene.framework("lim", demand=SMALL, count=4)
    scene.agent(ALL, "other")
    assert scene.offered(heir) == ""
    scene.returns("t1", "t2")
    assert scene.used() == "cpus:2;mem:2GB"


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
