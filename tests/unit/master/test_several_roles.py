"""Frameworks with several roles and several demands."""

from __future__ import annotations

import pytest

from croupier.master.allocator import Allocator
from croupier.master.core import calls
from croupier.master.core.events import AgentTask
from croupier.master.core.messages import PreemptRequested
from croupier.master.core.records import FrameworkRecord, Registry
from croupier.master.core.settings import Settings
from croupier.master.core.state_recovery import recover_state
from croupier.master.wire.to_framework import event_to_wire
from croupier.model.agent_orders import LaunchTask
from croupier.model.attributes import matches, not_matches
from croupier.model.demand import Demand
from croupier.model.errors import Conflict, InvalidRequest
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from croupier.model.task import Source, TaskInfo, TaskState, TaskStatus
from tests.harness.world import World, make_task

ADS, WEB, DEV = Role("ads/prod"), Role("web"), Role("dev")
UNIT = Resources.parse("cpus:1;mem:1GB")
LARGE = Resources.parse("cpus:4;mem:1GB")


def both(count: int = 2) -> tuple[Demand, ...]:
    return (Demand(UNIT, count), Demand(LARGE, 1, role=WEB))


def used(world: World, role: Role) -> dict[str, int]:
    return dict(world.state.allocator.queries.used_by_role().get(role, {}))


class TestOffers:
    def test_offer_is_in_the_role_of_its_demand(self) -> None:
        world = World()
        world.agent("cpus:8;mem:8GB")
        session = world.framework(roles=(ADS, WEB), demands=both())
        offers = {offer.role: offer.resources for offer in world.offers(session)}
        assert offers == {ADS: Resources.parse("cpus:2;mem:2GB"), WEB: LARGE}

    def test_role_without_demand_gets_no_offers(self) -> None:
        world = World()
        world.agent("cpus:8;mem:8GB")
        session = world.framework(roles=(ADS, WEB), demands=(Demand(UNIT, role=WEB),))
        assert {offer.role for offer in world.offers(session)} == {WEB}

    def test_tasks_count_for_the_role_of_their_offer(self) -> None:
        world = World()
        agent = world.agent("cpus:8;mem:8GB")
        session = world.framework(roles=(ADS, WEB), demands=both())
        (web,) = [offer for offer in world.offers(session) if offer.role == WEB]
        assert (
            world.accept(session, make_task("t1", "cpus:4;mem:1GB"), offers=[web.offer_id])
            .tasks[0]
            .error
            is None
        )
        (launch,) = [m for m in world.sent[agent] if isinstance(m, LaunchTask)]
        assert launch.role == WEB
        framework = world.state.frameworks[world.framework_id(session)]
        assert framework.tasks[TaskId("t1")].role == WEB
        assert used(world, WEB)["cpus"] == 4000
        assert "cpus" not in used(world, ADS)
        world.finish(agent, framework.framework_id, "t1")
        assert not used(world, WEB)

    def test_offers_of_several_roles_cannot_be_accepted_together(self) -> None:
        world = World()
        agent = world.agent("cpus:8;mem:8GB")
        session = world.framework(roles=(ADS, WEB), demands=both())
        ids = [str(offer.offer_id) for offer in world.offers(session)]
        verdict = world.accept(session, make_task("t1"), make_task("t2"), offers=ids)
        assert isinstance(verdict.error, InvalidRequest)
        assert [str(task.error) for task in verdict.tasks] == [
            "the offers are in several roles"
        ] * 2
        assert not world.launches(agent)
        assert not world.state.frameworks[world.framework_id(session)].tasks
        assert not {offer for offer in ids if offer in world.state.offers}
        # The resources are offered again.
        assert {offer.role for offer in world.offers(session)} == {ADS, WEB}

    def test_demand_is_counted_down_in_its_own_role(self) -> None:
        world = World()
        world.agent("cpus:8;mem:8GB")
        demands = (Demand(UNIT, 2), Demand(UNIT, 3, role=WEB))
        session = world.framework(roles=(ADS, WEB), demands=demands)
        (web,) = [offer for offer in world.offers(session) if offer.role == WEB]
        tasks = [make_task("t1"), make_task("t2")]
        world.accept(session, *tasks, offers=[str(web.offer_id)])
        left = world.state.allocator.queries.demands(world.framework_id(session))
        assert [demand.count for demand in left] == [2, 1]

    def test_constraints_by_pattern_choose_agents(self) -> None:
        world = World()
        for hostname, rack in (("node-1", "r1"), ("node-2", "r9"), ("edge-1", "r1")):
            world.agent("cpus:1;mem:1GB", hostname, f"rack:{rack}")
        tests = (matches("hostname", r"node-\d+"), not_matches("rack", "r[89]"))
        session = world.framework(demands=(Demand(UNIT, None, tests),))
        assert [offer.agent.hostname for offer in world.offers(session)] == ["node-1"]

    def test_task_above_a_limit_set_after_its_offer_is_refused(self) -> None:
        world = World()
        agent = world.agent("cpus:8;mem:8GB")
        session = world.framework(WEB, "cpus:1;mem:1GB", 3)
        world.state.allocator.set_role(WEB, RoleSettings(limit={"cpus": 2000}))
        verdict = world.accept(session, *(make_task(f"t{n}") for n in range(3)))
        assert verdict.error is None
        assert [type(task.error) for task in verdict.tasks] == [type(None), type(None), Conflict]
        assert "cpus:2 of its limit" in str(verdict.tasks[2].error)
        assert len(world.launches(agent)) == 2


class TestSuppression:
    def test_roles_are_suppressed_and_revived_separately(self) -> None:
        world = World()
        session = world.framework(roles=(ADS, WEB))
        assert world.call(session, calls.Suppress((ADS,))).error is None
        world.agent("cpus:8;mem:8GB")
        assert {offer.role for offer in world.offers(session)} == {WEB}
        world.call(session, calls.Suppress())
        world.decline(session, 0.0)
        assert not world.offers(session)
        world.call(session, calls.Revive((ADS,)))
        assert {offer.role for offer in world.offers(session)} == {ADS}

    def test_subscribe_may_suppress_some_roles(self) -> None:
        world = World()
        world.agent("cpus:8;mem:8GB")
        session = world.framework(roles=(ADS, WEB), suppressed_roles=(ADS,))
        assert {offer.role for offer in world.offers(session)} == {WEB}
        world.end_session(session)
        again = world.framework(roles=(ADS, WEB), framework_id="m-F1", suppressed_roles=(ADS, WEB))
        assert not world.offers(again)
        assert world.state.allocator.queries.is_suppressed(FrameworkId("m-F1"))

    @pytest.mark.parametrize("kind", [calls.Suppress, calls.Revive])
    def test_role_of_another_framework_is_refused(
        self, kind: type[calls.Suppress | calls.Revive]
    ) -> None:
        world = World()
        session = world.framework(roles=(ADS, WEB), suppressed_roles=(WEB,))
        verdict = world.call(session, kind((ADS, DEV)))
        assert isinstance(verdict.error, InvalidRequest)
        assert "'dev' is not one" in str(verdict.error)
        world.agent("cpus:8;mem:8GB")
        assert {offer.role for offer in world.offers(session)} == {ADS}


class TestChangedRoles:
    def start(self) -> World:
        """Start a framework with a task in each of two roles."""
        world = World()
        self.agent = world.agent("cpus:8;mem:8GB")
        session = world.framework(roles=(ADS, WEB), demands=both(1))
        for offer in world.offers(session):
            task = make_task(f"t-{offer.role[:3]}", str(offer.resources))
            world.accept(session, task, offers=[str(offer.offer_id)])
        assert used(world, WEB) == {"cpus": 4000, "mem": 1024_000}
        self.session = session
        return world

    def test_tasks_keep_their_roles(self) -> None:
        world = self.start()
        again = world.framework(roles=(DEV,), framework_id="m-F1")
        framework = world.state.frameworks[FrameworkId("m-F1")]
        assert framework.roles == (DEV,)
        assert {task.role for task in framework.tasks.values()} == {ADS, WEB}
        assert used(world, WEB)["cpus"] == 4000
        assert {offer.role for offer in world.offers(again)} == {DEV}
        world.finish(self.agent, "m-F1", "t-web")
        assert not used(world, WEB)
        assert {offer.role for offer in world.offers(again)} == {DEV}

    def test_restored_role_has_its_tasks(self) -> None:
        world = self.start()
        world.framework(roles=(ADS,), framework_id="m-F1")
        world.framework(roles=(WEB, ADS), framework_id="m-F1")
        assert used(world, WEB)["cpus"] == 4000
        world.finish(self.agent, "m-F1", "t-web")
        assert not used(world, WEB)

    def test_demand_in_a_dropped_role_is_refused(self) -> None:
        world = self.start()
        refused = world.framework(roles=(ADS,), demands=both(), framework_id="m-F1")
        assert isinstance(world.closed[refused], InvalidRequest)
        assert world.state.frameworks[FrameworkId("m-F1")].session == self.session
        assert world.state.frameworks[FrameworkId("m-F1")].roles == (ADS, WEB)

    def test_changed_roles_are_saved(self) -> None:
        world = self.start()
        world.framework(roles=(DEV, ADS), framework_id="m-F1")
        record = world.saved[-1]
        assert isinstance(record, FrameworkRecord)
        assert record.roles == (DEV, ADS)


class TestAfterARestart:
    def listed(self, task_id: str, role: Role | None) -> AgentTask:
        task: TaskInfo = make_task(task_id)
        running = TaskStatus(
            FrameworkId("f1"),
            task.task_id,
            AgentId("a1"),
            TaskState.RUNNING,
            Source.EXECUTOR,
            sequence=1,
        )
        return AgentTask(FrameworkId("f1"), task, running, (), role)

    def test_framework_keeps_its_roles(self) -> None:
        registry = Registry()
        registry.apply(FrameworkRecord(FrameworkId("f1"), "f", (ADS, WEB), 600.0))
        state = recover_state(registry, "m2", Settings(), Allocator(), 0.0)
        assert state.frameworks[FrameworkId("f1")].roles == (ADS, WEB)
        world = World(state=state)
        world.agent(
            "cpus:8;mem:8GB",
            agent_id="a1",
            tasks=(self.listed("t1", WEB), self.listed("t2", DEV), self.listed("t3", None)),
        )
        tasks = state.frameworks[FrameworkId("f1")].tasks
        assert [tasks[TaskId(f"t{n}")].role for n in (1, 2, 3)] == [WEB, DEV, ADS]
        assert [used(world, role)["cpus"] for role in (ADS, WEB, DEV)] == [1000] * 3

    def test_framework_known_by_its_tasks_has_their_role(self) -> None:
        world = World()
        listed = (self.listed("t1", WEB), self.listed("t2", DEV))
        session = world.agent("cpus:8;mem:8GB", agent_id="a1", tasks=listed)
        assert world.state.frameworks[FrameworkId("f1")].roles == (WEB,)
        world.framework(roles=(ADS,), framework_id="f1")
        assert [used(world, role)["cpus"] for role in (WEB, DEV)] == [1000] * 2
        world.finish(session, "f1", "t2")
        assert not used(world, DEV)


class TestRefusals:
    @pytest.mark.parametrize(
        "demands",
        [
            (Demand(UNIT, role=DEV),),
            (Demand(UNIT), Demand(UNIT, 3, role=ADS)),
            (Demand(UNIT, min_per_offer=0),),
            (Demand(UNIT, min_per_offer=-1),),
            (Demand(UNIT, min_per_offer=3, max_per_offer=2),),
            tuple(Demand(Resources({"cpus": n})) for n in range(1, 66)),
            (Demand(UNIT, None, (matches("rack", "r."),) * 10_000),),
        ],
    )
    def test_invalid_demands_change_nothing(self, demands: tuple[Demand, ...]) -> None:
        world = World()
        session = world.framework(roles=(ADS, WEB), demands=both())
        before = world.state.allocator.queries.demands(FrameworkId("m-F1"))
        assert isinstance(world.call(session, calls.UpdateDemand(demands)).error, InvalidRequest)
        assert world.state.allocator.queries.demands(FrameworkId("m-F1")) == before
        newer = world.framework(roles=(ADS, WEB), demands=demands, framework_id="m-F1")
        assert isinstance(world.closed[newer], InvalidRequest)
        assert world.state.frameworks[FrameworkId("m-F1")].session == session

    @pytest.mark.parametrize(
        "roles",
        [
            ("a/../b",), ("a//b",), ("/a",), ("a/",), ("-x",), ("",), ("x" * 2**20,),
            ("a", "b", "a"), tuple(f"r{number}" for number in range(33)),
        ],
    )  # fmt: skip
    def test_invalid_roles_change_nothing(self, roles: tuple[str, ...]) -> None:
        world = World()
        session = world.framework(roles=(ADS, WEB))
        newer = world.framework(roles=roles, framework_id="m-F1")
        assert isinstance(world.closed[newer], InvalidRequest)
        assert world.state.frameworks[FrameworkId("m-F1")].session == session
        assert world.state.frameworks[FrameworkId("m-F1")].roles == (ADS, WEB)
        fresh = world.framework(roles=roles)
        assert isinstance(world.closed[fresh], InvalidRequest)
        assert len(world.state.frameworks) == 1

    def test_subscribe_that_suppresses_another_role_changes_nothing(self) -> None:
        world = World()
        session = world.framework(roles=(ADS,), suppressed_roles=(WEB,))
        assert isinstance(world.closed[session], InvalidRequest)
        assert not world.state.frameworks


def test_preempt_request_is_converted() -> None:
    asked = PreemptRequested(
        (TaskId("t1"), TaskId("t2")), AgentId("a1"), 2.5, WEB, "role dev lacks cpus:2"
    )
    wire = event_to_wire(asked, {}).preempt_request
    assert list(wire.task_ids) == ["t1", "t2"]
    assert (wire.agent_id, wire.grace_ms, wire.role) == ("a1", 2500, "web")
    assert wire.reason == "role dev lacks cpus:2"
