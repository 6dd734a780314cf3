"""Tasks that are lined up at an agent: each runs once, and no one waits for another's line."""

from __future__ import annotations

from collections import Counter

from croupier.master.core import calls
from croupier.master.core.agent_commands import Deactivate, MarkGone, OperateAgent
from croupier.master.core.effects import SessionId
from croupier.master.core.events import AgentReported, AgentTask, Register, TasksReturned
from croupier.master.core.facts import TaskLined
from croupier.master.core.settings import Settings
from croupier.master.services.explanations import view_reasons
from croupier.model.agent_orders import KillTask, LaunchTask, RecallTask
from croupier.model.errors import ProtocolViolation
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Source, TaskInfo, TaskState, TaskStatus
from croupier.model.verdict import Verdict
from tests.harness.world import World, make_task

STARTING, RUNNING, FINISHED = TaskState.STARTING, TaskState.RUNNING, TaskState.FINISHED


class Lined(World):
    """An agent with two slots, and a framework that submits tasks of 10 ms."""

    def __init__(self, number: int = 0, settings: Settings | None = None) -> None:
        super().__init__(settings=settings)
        self.host = self.register()
        self.host_id = self.agent_id(self.host)
        self.session = self.framework(suppressed=True)
        self.owner = self.framework_id(self.session)
        if number:
            self.submit(number)

    def register(
        self, *tasks: AgentTask, agent_id: str = "", incomplete: bool = False
    ) -> SessionId:
        session = SessionId(next(self._sessions))
        total = Resources.parse("cpus:2;mem:2GB")
        self.do(
            Register(
                session,
                AgentId(agent_id),
                "host",
                total,
                {},
                tasks=tasks,
                incomplete=incomplete,
                lines_up=True,
            )
        )
        return session

    def submit(self, number: int, first: int = 1) -> Verdict:
        tasks = tuple(make_task(f"t{n}") for n in range(first, first + number))
        return self.call(self.session, calls.Submit(tasks))

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

    def run(self, task_id: str, successor: str = "", ms: int = 10) -> None:
        """Have a task run for 10 ms, and be succeeded."""
        statuses = (
            self.status(task_id, STARTING, 1, 1000),
            self.status(task_id, RUNNING, 2, 1001),
            self.status(task_id, FINISHED, 3, 1000 + ms, successor),
        )
        self.do(AgentReported(self.host, statuses))

    def give(self, *task_ids: str) -> None:
        """Have the agent return tasks."""
        keys = tuple((FrameworkId(self.owner), TaskId(each)) for each in task_ids)
        self.do(TasksReturned(self.host, keys))

    def of(self, task_id: str) -> str:
        """Return where a task is, as the master knows it."""
        return self.state.frameworks[self.owner].tasks[TaskId(task_id)].hold.value

    def state_of(self, task_id: str) -> TaskState:
        return self.state.frameworks[self.owner].tasks[TaskId(task_id)].state

    def orders(self) -> list[str]:
        """Return the launches, kills and recalls that the agent was sent."""
        found = []
        for each in self.sent[self.host]:
            match each:
                case LaunchTask(_, task, lined_up=lined_up):
                    found.append(f"{'line up' if lined_up else 'launch'} {task.task_id}")
                case KillTask(_, task_id):
                    found.append(f"kill {task_id}")
                case RecallTask(_, task_id):
                    found.append(f"recall {task_id}")
                case _:
                    pass
        return found

    def shown(self) -> list[str]:
        """Return what the framework was told."""
        return [f"{each.task_id} {each.state.name}" for each in self.updates(self.session)]


def test_one_task_is_lined_up_while_no_duration_is_known_and_many_later() -> None:
    world = Lined(60)
    assert world.orders() == ["launch t1", "launch t2", "line up t3"]
    world.run("t1", "t3")
    # 100 ms of work for each of two slots, at 10 ms for a task.
    assert world.orders()[3:] == [f"line up t{n}" for n in range(4, 24)]
    assert world.of("t3") == "active"
    assert world.shown() == [
        "t1 STAGING",
        "t2 STAGING",
        "t1 STARTING",
        "t1 RUNNING",
        "t1 FINISHED",
        "t3 STAGING",
    ]
    # More follow once half of them have started.
    before = len(world.orders())
    world.run("t2", "t4")
    assert len(world.orders()) == before


def test_behind_long_tasks_none_is_lined_up() -> None:
    world = Lined(5)
    world.run("t1", "t3", ms=5_000)
    assert world.orders()[3:] == []


def test_the_last_queued_task_is_not_lined_up() -> None:
    world = Lined(3)
    assert world.orders() == ["launch t1", "launch t2"]
    world.run("t1")
    assert world.orders()[2:] == ["launch t3"]


def test_nothing_is_lined_up_at_older_agents_nor_without_a_window() -> None:
    world = Lined(settings=Settings(line_window_s=0.0))
    world.submit(5)
    assert world.orders() == ["launch t1", "launch t2"]
    older = World()
    host = older.agent("cpus:1;mem:1GB")
    older.call(
        older.framework(suppressed=True), calls.Submit(tuple(make_task(f"t{n}") for n in range(4)))
    )
    assert len(older.launches(host)) == 1


def test_a_framework_with_a_smaller_share_recalls_what_is_lined_up() -> None:
    world = Lined(10)
    assert world.of("t3") == "lined up"
    other = world.framework(demand="cpus:1;mem:1GB", count=2)
    assert world.orders()[3:] == ["recall t3"]
    # Nothing else is lined up, nor is it recalled twice.
    world.run("t1")
    assert [str(each.resources) for each in world.offers(other)] == ["cpus:1;mem:1GB"]
    assert world.orders()[4:] == []
    world.give("t3")
    assert world.of("t3") == "queued"
    # It is the first one again.
    world.decline(other, 60.0)
    assert world.orders()[4:5] == ["launch t3"]


def test_a_recall_that_crosses_a_start_is_answered_by_the_start() -> None:
    world = Lined(10)
    world.framework(demand="cpus:1;mem:1GB", count=2)
    world.run("t1", "t3")
    assert world.of("t3") == "active"
    world.run("t3")
    assert world.orders() == ["launch t1", "launch t2", "line up t3", "recall t3"]


def test_frameworks_with_equal_shares_each_keep_their_line() -> None:
    """If one of a framework's tasks ended, it would be behind: so it is the next one."""
    world = Lined(10)
    world.run("t1")
    other = world.framework(suppressed=True)
    world.call(other, calls.Submit(tuple(make_task(f"u{n}") for n in range(10))))
    world.give("t3")
    world.run("t2")
    assert world.state.allocator.queries.free(world.host_id) == Resources()
    lined = [each for each in world.orders() if each.startswith("line up")]
    assert lined[-1].split()[-1][0] in "tu"


def test_a_misfit_that_waits_does_not_disturb_the_line() -> None:
    world = Lined(10)
    world.framework(demand="gpus:1", count=1)
    world.framework(demand="cpus:64", count=1)
    assert world.orders() == ["launch t1", "launch t2", "line up t3"]


def test_a_kill_recalls_a_task_which_then_never_runs() -> None:
    world = Lined(10)
    assert world.call(world.session, calls.Kill(TaskId("t3"), None)).error is None
    assert world.orders()[3:] == ["recall t3"]
    assert "t3 KILLED" not in world.shown()
    world.give("t3")
    assert world.shown()[-1] == "t3 KILLED"


def test_a_kill_that_crosses_the_start_kills_the_task() -> None:
    world = Lined(10)
    world.call(world.session, calls.Kill(TaskId("t3"), None))
    world.run("t1", "t3")
    assert world.orders()[3:5] == ["recall t3", "kill t3"]


def test_a_withdrawn_task_ends_when_its_agent_has_returned_it() -> None:
    world = Lined(10)
    verdict = world.call(world.session, calls.Withdraw((TaskId("t3"), TaskId("t4"))))
    assert [each.error for each in verdict.tasks] == [None, None]
    assert world.shown()[-1] == "t4 KILLED"
    world.give("t3")
    assert world.shown()[-1] == "t3 KILLED"


def test_a_successor_that_is_not_lined_up_ends_the_session() -> None:
    world = Lined(10)
    world.run("t1", "t9")
    assert isinstance(world.closed[world.host], ProtocolViolation)
    world = Lined(10)
    world.do(AgentReported(world.host, (world.status("t1", RUNNING, 1, 0, "t3"),)))
    assert isinstance(world.closed[world.host], ProtocolViolation)


def test_an_end_that_is_sent_again_passes_the_charge_once() -> None:
    world = Lined(10)
    world.run("t1", "t3")
    world.run("t1", "t3")
    assert world.host not in world.closed
    world.run("t3")
    world.run("t1", "t3")
    assert [world.of(f"t{n}") for n in (1, 2, 3, 4)] == [
        "released",
        "active",
        "released",
        "lined up",
    ]


def test_a_deactivated_agent_returns_its_line() -> None:
    world = Lined(10)
    world.do(OperateAgent(1, world.host_id, Deactivate()))
    assert world.orders()[3:] == ["recall t3"]
    world.run("t1")
    world.give("t3")
    assert [world.of(f"t{n}") for n in (2, 3, 4)] == ["active", "queued", "queued"]


def test_an_agent_that_comes_back_without_lined_up_tasks_never_started_them() -> None:
    world = Lined(10)
    world.end_session(world.host)
    assert world.of("t3") == "lined up"
    world.host = world.register(agent_id=world.host_id)
    assert world.orders() == ["launch t1", "launch t2"]
    assert world.of("t3") == "queued"


def test_an_agent_that_lost_records_may_have_started_them() -> None:
    world = Lined(10)
    world.end_session(world.host)
    world.host = world.register(agent_id=world.host_id, incomplete=True)
    assert "t3 GONE" in world.shown()


def listed(world: Lined, task_id: str, state: TaskState) -> AgentTask:
    statuses = (world.status(task_id, STARTING, 1, 1000), world.status(task_id, state, 2, 1001))
    return AgentTask(FrameworkId(world.owner), _info(task_id), statuses[-1], statuses)


def _info(task_id: str) -> TaskInfo:
    return make_task(task_id)


def test_an_agent_that_comes_back_with_a_started_task_keeps_it() -> None:
    world = Lined(10)
    world.end_session(world.host)
    ended = world.status("t1", FINISHED, 1, 1000, "t3")
    first = AgentTask(FrameworkId(world.owner), _info("t1"), ended, (ended,))
    tasks = (first, listed(world, "t2", RUNNING), listed(world, "t3", RUNNING))
    world.host = world.register(*tasks, agent_id=world.host_id)
    assert [world.of(f"t{n}") for n in (1, 2, 3)] == ["released", "active", "active"]
    assert world.shown()[-3:] == ["t2 RUNNING", "t3 STARTING", "t3 RUNNING"]


def test_what_no_task_can_be_succeeded_by_is_recalled() -> None:
    world = Lined(4)
    for task_id in ("t1", "t2", "t4"):
        world.run(task_id)
    assert world.orders() == ["launch t1", "launch t2", "line up t3", "launch t4", "recall t3"]


def test_a_lost_agent_may_have_started_its_line() -> None:
    """So the task is not dealt again: what becomes of it is known when the agent is back."""
    world = Lined(10)
    world.end_session(world.host)
    world.pass_time(80)
    assert world.state_of("t3") is TaskState.UNREACHABLE
    world.host = world.register(listed(world, "t3", RUNNING), agent_id=world.host_id)
    assert world.of("t3") == "active"
    again = Lined(10)
    again.end_session(again.host)
    again.pass_time(80)
    again.host = again.register(agent_id=again.host_id)
    assert again.orders() == ["launch t1", "launch t2"]
    assert again.state_of("t3") is TaskState.DROPPED


def test_an_agent_that_is_declared_gone_may_have_started_its_line() -> None:
    world = Lined(10)
    world.do(OperateAgent(1, world.host_id, MarkGone()))
    assert "t3 GONE_BY_OPERATOR" in world.shown()


def test_a_new_master_waits_for_the_agent() -> None:
    world = Lined(10)
    world.restart()
    assert world.of("t3") == "lined up"
    world.session = world.framework(framework_id=world.owner, suppressed=True)
    world.host = world.register(listed(world, "t2", RUNNING), agent_id=world.host_id)
    # t1 never arrived.
    assert world.orders() == ["launch t1"]
    assert world.of("t3") == "queued"
    world.run("t2")
    assert world.orders()[1:] == ["launch t3", "line up t4"]
    again = Lined(10)
    again.restart()
    again.session = again.framework(framework_id=again.owner, suppressed=True)
    again.pass_time(620)
    assert again.state_of("t3") is TaskState.UNREACHABLE


def test_a_removed_framework_takes_its_line_with_it() -> None:
    world = Lined(10)
    world.call(world.session, calls.Teardown())
    assert "recall t3" in world.orders()
    world.give("t3")
    for task_id in ("t1", "t2"):
        world.do(AgentReported(world.host, (world.status(task_id, FINISHED, 1, 0),)))
    assert world.owner not in world.state.frameworks


def test_a_disconnected_framework_is_dealt_nothing_more() -> None:
    world = Lined(10)
    world.end_session(world.session)
    assert world.orders()[3:] == ["recall t3"]


def test_each_step_of_a_line_is_counted() -> None:
    world = Lined(10)
    world.run("t1", "t3")
    world.end_session(world.session)
    world.give("t4")
    outcomes = Counter(each.outcome for each in world.facts if isinstance(each, TaskLined))
    assert outcomes == {"lined_up": 4, "started": 1, "recalled": 3, "returned": 1}


def test_an_explanation_names_lined_up_tasks_and_their_hosts() -> None:
    world = Lined(10)
    answer = view_reasons(world.state, world.owner, AgentId(""), world.now)
    assert answer.framework.lined_up == 1
    assert answer.framework.queued == 8
    assert list(answer.lined_up_hosts) == ["host"]
