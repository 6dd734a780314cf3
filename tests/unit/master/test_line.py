"""Tasks that are lined up: what `scenarios/line.txt` does not tell of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from croupier.master.core import calls
from croupier.master.core.effects import SessionId
from croupier.master.core.events import AgentReported, AgentTask, TasksReturned
from croupier.master.core.facts import TaskLined
from croupier.model.agent_orders import KillTask
from croupier.model.errors import ProtocolViolation
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.task import Source, TaskState, TaskStatus
from tests.harness.explained import explained
from tests.harness.world import World, make_task

STARTING, RUNNING, FINISHED = TaskState.STARTING, TaskState.RUNNING, TaskState.FINISHED


class Lined(World):
    """An agent with two slots, and a framework that has submitted ten tasks of 10 ms."""

    def __init__(self) -> None:
        super().__init__()
        self.host = self.register()
        self.host_id = self.agent_id(self.host)
        self.session = self.framework(suppressed=True)
        self.owner = self.framework_id(self.session)
        self.call(self.session, calls.Submit(tuple(make_task(f"t{n}") for n in range(1, 11))))

    def register(self, *tasks: AgentTask, agent_id: str = "") -> SessionId:
        return self.agent("cpus:2;mem:2GB", agent_id=agent_id, tasks=tasks, lines_up=True)

    def status(
        self, task_id: str, state: TaskState, number: int, ms: int, successor: str = ""
    ) -> TaskStatus:
        return TaskStatus(
            FrameworkId(self.owner),
            TaskId(task_id),
            self.host_id,
            state,
            Source.EXECUTOR,
            sequence=number,
            time_ms=ms,
            successor=TaskId(successor),
        )

    def of(self, task_id: str) -> str:
        """Return where a task is, as the master knows it."""
        return self.state.frameworks[self.owner].tasks[TaskId(task_id)].hold.value

    def shown(self) -> list[str]:
        """Return what the framework was told."""
        return [f"{each.task_id} {each.state.name}" for each in self.updates(self.session)]


def test_a_successor_of_a_task_that_has_not_ended_ends_the_session() -> None:
    world = Lined()
    world.do(AgentReported(world.host, (world.status("t1", RUNNING, 1, 0, "t3"),)))
    assert isinstance(world.closed[world.host], ProtocolViolation)


def listed(world: Lined, task_id: str, state: TaskState) -> AgentTask:
    statuses = (world.status(task_id, STARTING, 1, 1000), world.status(task_id, state, 2, 1001))
    return AgentTask(FrameworkId(world.owner), make_task(task_id), statuses[-1], statuses)


def test_an_agent_that_comes_back_with_a_started_task_keeps_it() -> None:
    world = Lined()
    world.end_session(world.host)
    ended = world.status("t1", FINISHED, 1, 1000, "t3")
    first = AgentTask(FrameworkId(world.owner), make_task("t1"), ended, (ended,))
    tasks = (first, listed(world, "t2", RUNNING), listed(world, "t3", RUNNING))
    world.host = world.register(*tasks, agent_id=world.host_id)
    assert [world.of(f"t{n}") for n in (1, 2, 3)] == ["released", "active", "active"]
    assert world.shown()[-3:] == ["t2 RUNNING", "t3 STARTING", "t3 RUNNING"]


def test_each_step_of_a_line_is_counted() -> None:
    world = Lined()
    life = ((STARTING, 1000, ""), (RUNNING, 1001, ""), (FINISHED, 1010, "t3"))
    ran = (world.status("t1", each[0], n, *each[1:]) for n, each in enumerate(life, 1))
    world.do(AgentReported(world.host, tuple(ran)))
    world.end_session(world.session)
    world.do(TasksReturned(world.host, ((FrameworkId(world.owner), TaskId("t4")),)))
    outcomes = Counter(each.outcome for each in world.facts if isinstance(each, TaskLined))
    assert outcomes == {"lined_up": 4, "started": 1, "recalled": 3, "returned": 1}


def test_an_explanation_names_lined_up_tasks_and_their_hosts() -> None:
    world = Lined()
    answer = explained(world.state, world.owner, AgentId(""), world.now)
    assert answer.framework.lined_up == 1
    assert answer.framework.queued == 8
    assert list(answer.lined_up_hosts) == ["host"]


def older_store_of_a_removed_framework() -> Lined:
    """Return a world with an older store, in which a task of the framework waits in line."""
    world = Lined()
    world.call(world.session, calls.Teardown())
    assert world.of("t3") == "lined up"
    registry = world.registry()
    assert registry.master is not None
    registry.master = replace(registry.master, generation=1)
    world.state = world._recovered("c-2", registry)
    return world


def test_what_an_older_store_has_lined_up_for_a_removed_framework_ends_with_its_agent() -> None:
    """No framework is there that could acknowledge that it is lost."""
    world = older_store_of_a_removed_framework()
    world.register(agent_id=world.host_id)
    assert not world.registry().tasks
    assert not world.state.frameworks


def test_what_has_run_elsewhere_of_a_removed_framework_is_ended_there() -> None:
    world = older_store_of_a_removed_framework()
    running = replace(listed(world, "t3", RUNNING).latest, agent_id=AgentId("other"))
    found = AgentTask(FrameworkId(world.owner), make_task("t3"), running, (running,))
    session = world.register(found, agent_id="other")
    assert session not in world.closed
    killed = [each for each in world.sent[session] if isinstance(each, KillTask)]
    assert [each.task_id for each in killed] == ["t3"]
    world.register(agent_id=world.host_id)
    assert not world.registry().tasks


def test_what_is_lined_up_behind_a_long_task_is_recalled_while_it_runs() -> None:
    world = Lined()
    world.pass_time(2)
    other = world.agent("cpus:16;mem:16GB")
    task = world.state.frameworks[world.owner].tasks[TaskId("t3")]
    assert (world.of("t10"), task.is_recalled) == ("active", True)
    world.do(TasksReturned(world.host, ((FrameworkId(world.owner), TaskId("t3")),)))
    assert (task.agent_id, world.of("t3")) == (world.agent_id(other), "active")
