"""Tasks that are submitted: nothing that a framework declined holds them back; each runs once."""

from __future__ import annotations

from dataclasses import replace

from croupier.master.core import calls
from croupier.master.core.events import AgentTask
from croupier.master.core.records import TaskRecord
from croupier.model.ids import AgentId, TaskId
from croupier.model.isolation import Isolation
from croupier.model.task import TaskInfo, TaskState, TaskStatus
from croupier.model.verdict import Verdict
from tests.harness.restarting import Scene
from tests.harness.world import make_task


class Submitting(Scene):
    """One agent of 4 cpus, and one framework that suppressed offers."""

    def __init__(self) -> None:
        super().__init__()
        self.call(self.session, calls.Suppress())
        self.decline(self.session, 0)

    def submit(self, *tasks: TaskInfo, seq: int | None = None) -> Verdict:
        return self.call(self.session, calls.Submit(tasks), seq)

    def launched(self) -> list[str]:
        return [task.task_id for task in self.launches(self.host)]


def tasks(number: int, resources: str = "cpus:1;mem:1GB") -> list[TaskInfo]:
    return [make_task(f"t{n}", resources) for n in range(1, number + 1)]


def errors(verdict: Verdict) -> list[str]:
    return [str(task.error or "") for task in verdict.tasks]


def test_agents_that_cannot_enforce_what_a_task_asks_for_are_passed_over() -> None:
    scene = Submitting()
    boxed = replace(make_task("t1"), isolation=Isolation(namespaces=True))
    scene.submit(boxed)
    assert scene.launched() == []
    able = scene.agent("cpus:4;mem:4GB", features="namespaces,users")
    assert [task.task_id for task in scene.launches(able)] == ["t1"]


def test_shapes_are_bounded() -> None:
    many = [make_task(f"s{n}", f"cpus:{n};mem:1GB") for n in range(10, 80)]
    refused = [text for text in errors(Submitting().submit(*many)) if text]
    assert len(refused) == 6
    assert "64 different" in refused[0]


def test_a_repeated_call_queues_nothing_twice() -> None:
    scene = Submitting()
    first = scene.submit(*tasks(2), seq=10)
    assert scene.submit(*tasks(2), seq=10) == first
    assert len(scene.launched()) == 2


def test_queued_tasks_survive_a_failover_and_each_runs_once() -> None:
    scene = Submitting()
    scene.submit(*tasks(7), seq=10)
    before = scene.launched()
    scene.restart()
    scene.framework_back()
    # The verdict may have been lost with the master.
    assert errors(scene.submit(*tasks(7), seq=10)) == [""] * 7
    running = tuple(scene.launches(scene.host))
    assert len(running) == 4
    back = scene.agent("cpus:8;mem:8GB")
    assert sorted(task.task_id for task in scene.launches(back)) == ["t5", "t6", "t7"]
    assert before == ["t1", "t2", "t3", "t4"]


def test_an_older_copy_of_the_store_launches_nothing_that_may_have_run() -> None:
    scene = Submitting()
    scene.submit(*tasks(5))
    registry = scene.registry()
    assert registry.master is not None
    registry.master = replace(registry.master, generation=1)
    scene.state = scene._recovered("c-2", registry)
    scene.framework_back()
    assert scene.task_updates("t5")[-1].state is TaskState.LOST
    assert "older copy" in scene.task_updates("t5")[-1].message


def test_an_agent_that_runs_a_task_which_an_older_store_holds_as_queued_is_admitted() -> None:
    scene = Submitting()
    scene.submit(*tasks(1, "cpus:1;mem:1GB;ports:1"))
    host = scene.agent("cpus:4;mem:4GB;ports:[1-9]", agent_id="other")
    (launched,) = scene.launches(host)
    report = TaskStatus(
        scene.owner, launched.task_id, AgentId("other"), TaskState.RUNNING, sequence=1
    )
    older = [each for each in scene.saved if not isinstance(each, TaskRecord) or each.queued]
    scene.saved[:] = older
    scene.ledger = scene.registry().tasks
    scene.restart()
    listed = AgentTask(scene.owner, launched, report, (report,))
    back = scene.agent("cpus:4;mem:4GB;ports:[1-9]", agent_id="other", tasks=(listed,))
    assert back not in scene.closed
    assert scene.state.frameworks[scene.owner].tasks[TaskId("t1")].state is TaskState.LOST
