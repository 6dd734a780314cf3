"""SUBMIT and WITHDRAW: queued tasks are dealt to like declared demand, and each runs once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from croupier.master.allocator.back_off import MOMENT_S
from croupier.master.core import calls
from croupier.master.core.events import AgentTask
from croupier.master.core.records import TaskRecord
from croupier.master.core.settings import Settings
from croupier.model.attributes import Constraint, Operator
from croupier.model.demand import ANYWHERE, Demand, Placement
from croupier.model.errors import Conflict, InvalidRequest, NotFound
from croupier.model.ids import AgentId, Role, TaskId
from croupier.model.isolation import Isolation
from croupier.model.resources import Resources
from croupier.model.task import Reason, TaskInfo, TaskState, TaskStatus
from croupier.model.verdict import Verdict
from tests.harness.restarting import Scene
from tests.harness.world import World, make_task


class Submitting(Scene):
    """One agent of 4 cpus, and one framework that suppressed offers."""

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        self.call(self.session, calls.Suppress())
        self.decline(self.session, 0)

    def submit(
        self,
        *tasks: TaskInfo,
        placement: Placement = ANYWHERE,
        role: str | None = None,
        seq: int | None = None,
    ) -> Verdict:
        call = calls.Submit(tasks, None if role is None else Role(role), placement)
        return self.call(self.session, call, seq)

    def launched(self) -> list[str]:
        return [task.task_id for task in self.launches(self.host)]

    def state_of(self, task_id: str) -> TaskState:
        return self.state.frameworks[self.owner].tasks[TaskId(task_id)].state

    def finish_task(self, task_id: str) -> None:
        self.finish(self.host, self.owner, task_id)
        acknowledged = ((self.host_id, TaskId(task_id), 2),)
        self.call(self.session, calls.Acknowledge(acknowledged))


def tasks(number: int, resources: str = "cpus:1;mem:1GB", start: int = 1) -> list[TaskInfo]:
    return [make_task(f"t{n}", resources) for n in range(start, start + number)]


def errors(verdict: Verdict) -> list[str]:
    return [str(task.error or "") for task in verdict.tasks]


def test_tasks_are_placed_in_order_as_room_allows() -> None:
    scene = Submitting()
    assert errors(scene.submit(*tasks(6))) == [""] * 6
    assert scene.launched() == ["t1", "t2", "t3", "t4"]
    assert scene.state_of("t4") is TaskState.STAGING
    assert scene.state_of("t5") is TaskState.QUEUED
    assert [(s.task_id, s.state.name, s.agent_id) for s in scene.updates(scene.session)] == [
        (f"t{n}", "STAGING", scene.host_id) for n in range(1, 5)
    ]
    scene.finish_task("t2")
    assert scene.launched()[4:] == ["t5"]
    scene.finish_task("t1")
    assert scene.launched()[5:] == ["t6"]
    assert not scene.offers(scene.session)


def test_a_framework_without_demand_gets_remainders_again_when_its_queue_is_empty() -> None:
    world = World()
    world.agent("cpus:4;mem:4GB")
    session = world.framework()
    world.call(session, calls.Submit(tuple(tasks(2))))
    world.decline(session, 0)
    assert len(world.updates(session)) == 2
    assert [str(offer.resources) for offer in world.offers(session)] == ["cpus:2;mem:2GB"]


def test_declared_demand_and_submitted_tasks_are_dealt_side_by_side() -> None:
    scene = Submitting()
    unit = Resources.parse("cpus:1;mem:1GB")
    scene.call(scene.session, calls.UpdateDemand((Demand(unit, 1),)))
    scene.call(scene.session, calls.Revive())
    scene.submit(*tasks(2))
    assert scene.launched() == ["t1", "t2"]
    assert [offer.resources for offer in scene.offers(scene.session)] == [unit]
    scene.accept(scene.session, make_task("a"))
    assert scene.state.allocator.queries.demands(scene.owner)[0].count == 0


A_YEAR_S = 365 * 86400.0


def declines(scene: Scene) -> None:
    scene.decline(scene.session, A_YEAR_S)


def declines_and_suppresses(scene: Scene) -> None:
    declines(scene)
    scene.call(scene.session, calls.Suppress())


def leaves_offers_unanswered(scene: Scene) -> None:
    scene.pass_time(scene.state.settings.offer_lease_s)
    assert scene.state.allocator.back_off.active(scene.now)


def accepts_a_part(scene: Scene) -> None:
    offer = scene.offers(scene.session)[0]
    small = make_task("small", "cpus:1;mem:1MB")
    scene.call(scene.session, calls.Accept((offer.offer_id,), (small,), A_YEAR_S))


def declines_larger_demand(scene: Scene) -> None:
    unit = Resources.parse("cpus:4;mem:2GB")
    scene.call(scene.session, calls.UpdateDemand((Demand(unit, None, max_per_offer=1),)))
    declines(scene)


@pytest.mark.parametrize("bound", [None, 3])
@pytest.mark.parametrize(
    "before",
    [
        declines,
        declines_and_suppresses,
        leaves_offers_unanswered,
        accepts_a_part,
        declines_larger_demand,
    ],
)
def test_what_a_framework_refuses_to_be_offered_does_not_hold_back_its_tasks(
    before: Callable[[Scene], None], bound: int | None
) -> None:
    scene = Scene()
    before(scene)
    scene.pass_time(0.5)
    placed = len(scene.launches(scene.host))
    call = calls.Submit(
        tuple(tasks(3)), placement=Placement(max_per_agent=bound and bound + placed)
    )
    scene.call(scene.session, call)
    assert [task.task_id for task in scene.launches(scene.host)][placed:] == ["t1", "t2", "t3"]
    assert not scene.offers(scene.session), "the filter still holds for offers"


def test_a_filter_in_one_role_does_not_hold_back_tasks_in_another() -> None:
    world = World()
    host = world.agent("cpus:4;mem:4GB")
    session = world.framework(roles=("a", "b"))
    for _ in range(2):
        world.decline(session, A_YEAR_S)
    for role in ("a", "b"):
        world.call(session, calls.Submit((make_task(f"in-{role}"),), Role(role)))
    assert [task.task_id for task in world.launches(host)] == ["in-a", "in-b"]


def test_tasks_of_a_party_that_backs_off_keep_their_place_in_the_order() -> None:
    scene = Scene()
    leaves_offers_unanswered(scene)
    other = scene.framework(demand="cpus:1;mem:1GB")
    scene.accept(other, *(make_task(f"o{n}") for n in range(4)))
    scene.call(scene.session, calls.Submit(tuple(tasks(2))))
    for number in range(2):
        assert len(scene.launches(scene.host)) == 4 + number
        scene.finish(scene.host, scene.framework_id(other), f"o{number}")
    assert [task.task_id for task in scene.launches(scene.host)][4:] == ["t1", "t2"]


def test_tasks_that_wait_end_unanswered_offers_of_their_own_party() -> None:
    scene = Scene()
    leaves_offers_unanswered(scene)
    scene.pass_time(scene.state.settings.refuse_s)
    assert len(scene.offers(scene.session)) == 1
    scene.call(scene.session, calls.Submit(tuple(tasks(2))))
    scene.pass_time(MOMENT_S)
    assert [task.task_id for task in scene.launches(scene.host)] == ["t1", "t2"]


def test_tasks_of_several_shapes_do_not_block_each_other() -> None:
    scene = Submitting()
    scene.submit(make_task("large", "cpus:9;mem:1GB"), *tasks(2))
    assert scene.launched() == ["t1", "t2"]
    assert scene.state_of("large") is TaskState.QUEUED


def test_constraints_and_the_maximum_per_agent_hold() -> None:
    scene = Submitting()
    ssd = Placement((Constraint("disk", Operator.EQUALS, "ssd"),))
    scene.submit(*tasks(2), placement=ssd)
    assert scene.launched() == []
    other = scene.agent("cpus:4;mem:4GB", attributes="disk:ssd")
    assert len(scene.launches(other)) == 2
    scene.submit(*tasks(5, start=10), placement=Placement(max_per_agent=1))
    # The other agent runs two tasks of this framework already.
    assert scene.launched() == ["t10"]
    assert len(scene.launches(other)) == 2
    scene.finish_task("t10")
    assert scene.launched() == ["t10", "t11"]


def test_agents_that_cannot_enforce_what_a_task_asks_for_are_passed_over() -> None:
    scene = Submitting()
    boxed = replace(make_task("t1"), isolation=Isolation(namespaces=True))
    scene.submit(boxed)
    assert scene.state_of("t1") is TaskState.QUEUED
    able = scene.agent("cpus:4;mem:4GB", features="namespaces,users")
    assert [task.task_id for task in scene.launches(able)] == ["t1"]


def test_numbers_of_ports_become_certain_ports() -> None:
    scene = Submitting()
    host = scene.agent("cpus:4;mem:4GB;ports:[31000-31003]")
    scene.submit(*tasks(3, "cpus:1;mem:1GB;ports:2"))
    ports = [str(task.resources["ports"]) for task in scene.launches(host)]
    assert [str(t.resources) for t in scene.launches(host)] == [
        "cpus:1;mem:1GB;ports:[31000-31001]",
        "cpus:1;mem:1GB;ports:[31002-31003]",
    ], ports
    certain = scene.submit(make_task("c", "cpus:1;mem:1GB;ports:[31000-31000]"))
    assert "asks for certain ports" in errors(certain)[0]


def test_a_bad_task_is_refused_without_the_others() -> None:
    scene = Submitting()
    verdict = scene.submit(make_task("t1"), make_task("t1"), make_task("t2", "cpus:0.001"))
    assert errors(verdict)[0] == ""
    assert "was used before" in errors(verdict)[1]
    assert "too small" in errors(verdict)[2]
    assert scene.launched() == ["t1"]


@pytest.mark.parametrize(
    ("role", "placement", "text"),
    [
        ("other", ANYWHERE, "not one of the framework's"),
        (None, Placement(max_per_agent=0), "between 1 and"),
    ],
)
def test_a_bad_call_changes_nothing(role: str | None, placement: Placement, text: str) -> None:
    scene = Submitting()
    verdict = scene.submit(*tasks(2), role=role, placement=placement)
    assert isinstance(verdict.error, InvalidRequest)
    assert text in str(verdict.error)
    assert [type(task.error) for task in verdict.tasks] == [InvalidRequest] * 2
    assert not scene.state.frameworks[scene.owner].tasks


def test_queues_are_bounded() -> None:
    scene = Submitting(Settings(queued_tasks=3))
    verdict = scene.submit(*tasks(5, "cpus:9;mem:1GB"))
    assert [type(task.error) for task in verdict.tasks[3:]] == [Conflict, Conflict]
    assert "3 tasks of the framework are queued" in errors(verdict)[3]
    many = [make_task(f"s{n}", f"cpus:{n};mem:1GB") for n in range(10, 80)]
    other = Submitting()
    refused = [text for text in errors(other.submit(*many)) if text]
    assert len(refused) == 6
    assert "64 different" in refused[0]


def test_queued_tasks_are_withdrawn_and_others_are_not() -> None:
    scene = Submitting()
    scene.submit(*tasks(6))
    named = tuple(map(TaskId, ("t6", "t1", "nothing")))
    verdict = scene.call(scene.session, calls.Withdraw(named))
    assert [type(task.error) for task in verdict.tasks] == [type(None), Conflict, NotFound]
    last = scene.task_updates("t6")[-1]
    assert (last.state, last.reason) == (TaskState.KILLED, Reason.KILLED_BY_FRAMEWORK)
    again = scene.call(scene.session, calls.Withdraw((TaskId("t6"),)))
    assert again.tasks[0].error is None
    for done in ("t1", "t2", "t3", "t4"):
        scene.finish_task(done)
    assert scene.launched() == ["t1", "t2", "t3", "t4", "t5"]


def test_a_task_that_ran_to_its_end_is_not_withdrawn() -> None:
    scene = Submitting()
    scene.submit(*tasks(2))
    scene.finish(scene.host, scene.owner, "t1")
    scene.finish_task("t2")
    verdict = scene.call(scene.session, calls.Withdraw((TaskId("t1"), TaskId("t2"))))
    assert errors(verdict) == [
        f"task {task_id} has ended; there was nothing to withdraw" for task_id in ("t1", "t2")
    ]


def test_a_queued_task_is_killed_at_once() -> None:
    scene = Submitting()
    scene.submit(*tasks(5))
    scene.call(scene.session, calls.Kill(TaskId("t5")))
    assert scene.task_updates("t5")[-1].state is TaskState.KILLED
    assert scene.state.frameworks[scene.owner].queues._queues == {}


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


def test_queued_tasks_wait_while_the_framework_is_away_and_end_with_it() -> None:
    scene = Submitting()
    scene.submit(*tasks(5))
    scene.end_session(scene.session)
    scene.finish(scene.host, scene.owner, "t1")
    assert len(scene.launched()) == 4
    scene.framework_back()
    assert len(scene.launched()) == 5
    scene.submit(*tasks(2, start=10))
    scene.end_session(scene.session)
    scene.pass_time(700)
    assert scene.owner not in scene.state.frameworks
    assert not scene.ledger


def test_tasks_of_a_role_that_the_framework_leaves_are_dropped() -> None:
    world = World()
    session = world.framework(roles=("a", "b"), suppressed=True)
    owner = world.framework_id(session)
    world.call(session, calls.Submit(tuple(tasks(1)), Role("b")))
    world.call(session, calls.Submit(tuple(tasks(1, start=2)), Role("a")))
    world.end_session(session)
    session = world.framework(framework_id=owner, roles=("a",), suppressed=True)
    states = {task.task_id: task.state for task in world.state.frameworks[owner].tasks.values()}
    assert states == {"t1": TaskState.DROPPED, "t2": TaskState.QUEUED}
    assert [status.state for status in world.updates(session)] == [TaskState.DROPPED]


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


def test_limits_and_shares_hold_for_queued_tasks() -> None:
    world = World()
    first = world.framework("a", suppressed=True)
    second = world.framework("b", suppressed=True)
    for session, prefix in ((first, "a"), (second, "b")):
        many = tuple(make_task(f"{prefix}{n}") for n in range(8))
        world.call(session, calls.Submit(many))
    host = world.agent("cpus:8;mem:8GB")
    launched = [task.task_id[0] for task in world.launches(host)]
    assert sorted(launched) == ["a"] * 4 + ["b"] * 4


def test_a_removed_framework_leaves_no_queue() -> None:
    scene = Submitting()
    scene.submit(*tasks(5))
    scene.call(scene.session, calls.Teardown())
    for n in range(1, 5):
        scene.finish(scene.host, scene.owner, f"t{n}")
    assert scene.owner not in scene.state.frameworks
    assert not scene.ledger


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
