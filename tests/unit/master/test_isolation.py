"""What agents can enforce, and tasks that ask for it: offers, launches, returns and placement."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.master.core.agent_status import agent_status
from croupier.master.core.effects import SessionId
from croupier.master.core.events import Register
from croupier.master.core.messages import Offered
from croupier.master.wire.to_framework import agent_to_wire
from croupier.model.access import AGENT_USER, OWN_USER
from croupier.model.agent_orders import LaunchTask
from croupier.model.attributes import enforces
from croupier.model.demand import Demand
from croupier.model.errors import InvalidRequest, PermissionDenied
from croupier.model.ids import AgentId
from croupier.model.isolation import Feature, Isolation, Limits, feature_names
from croupier.model.resources import Resources
from croupier.model.task import Reason, TaskInfo, TaskState
from croupier.v1 import agent_pb2
from tests.harness.off_the_wire import report_from_wire
from tests.harness.restarting import ALL, Scene
from tests.harness.secured_world import SecuredWorld
from tests.harness.world import World, make_task


def limited(task_id: str = "t1") -> TaskInfo:
    return replace(make_task(task_id), limits=Limits(mem=2_000_000, pids=10))


class Enforcing(Scene):
    """A scene whose agent can enforce something."""

    def returns(self, *features: Feature, default_user: str = AGENT_USER) -> None:
        self.host = SessionId(next(self._sessions))
        event = Register(self.host, self.host_id, "host", Resources.parse(ALL), {})
        self.do(replace(event, features=frozenset(features), default_user=default_user))

    def launched(self) -> list[LaunchTask]:
        return [each for each in self.sent[self.host] if isinstance(each, LaunchTask)]


def test_a_task_that_its_agent_cannot_bound_is_refused() -> None:
    scene = Enforcing()
    scene.returns(Feature.PIDS, Feature.FILES)
    (refused,) = scene.accept(scene.session, limited()).tasks
    assert isinstance(refused.error, InvalidRequest)
    said = f"agent {scene.host_id} cannot enforce memory, which the task asks for"
    assert said in str(refused.error)
    assert "it enforces files, pids" in str(refused.error)
    assert not scene.launched()


@pytest.mark.parametrize(
    "isolation", [Isolation(namespaces=True), Isolation(no_network=True), Isolation(image="dir:/")]
)
def test_an_agent_of_an_older_release_enforces_nothing(isolation: Isolation) -> None:
    scene = Enforcing()
    plain, isolated = make_task("t1"), replace(make_task("t2"), isolation=isolation)
    first, second = scene.accept(scene.session, plain, isolated).tasks
    assert first.error is None
    assert "it enforces nothing" in str(second.error)


def test_an_able_agent_gets_the_task() -> None:
    scene = Enforcing()
    scene.returns(Feature.PIDS, Feature.MEMORY, Feature.USAGE)
    scene.launch(limited())
    (order,) = scene.launched()
    assert order.task == limited()


def test_a_launch_that_the_returned_agent_cannot_enforce_ends_the_task() -> None:
    scene = Enforcing()
    scene.returns(Feature.PIDS, Feature.MEMORY)
    scene.launch(limited())
    scene.returns(Feature.PIDS)
    assert not scene.launched()
    (dropped,) = scene.task_updates()
    assert (dropped.state, dropped.reason) == (TaskState.DROPPED, Reason.AGENT_RESTARTED)
    assert "cannot enforce memory" in dropped.message


def test_offers_and_lists_show_features() -> None:
    scene = Enforcing()
    scene.returns(Feature.MEMORY, Feature.CPU_WEIGHT, default_user="daemon")
    offered = [each for each in scene.sent[scene.session] if isinstance(each, Offered)][-1]
    assert list(agent_to_wire(offered.agent).isolation) == ["cpu-weight", "memory"]
    status = agent_status(scene.state, scene.state.agents[scene.host_id], scene.now)
    assert feature_names(status.agent.features) == ["cpu-weight", "memory"]
    assert status.default_user == "daemon"


def test_demand_waits_for_an_agent_that_enforces_it() -> None:
    world = World()
    world.agent("cpus:1", "weak", agent_id="a1", features="memory,users")
    wanted = Demand(Resources.parse("cpus:1"), 1, (enforces("memory", "images"),))
    session = world.framework(demands=(wanted,))
    assert not world.offers(session)
    world.agent("cpus:1", "able", agent_id="a2", features="images,memory,users")
    (offer,) = world.offers(session)
    assert offer.agent.agent_id == "a2"


def test_features_of_a_later_release_are_left_out() -> None:
    wire = agent_pb2.Register(agent_id="a1", hostname="h", isolation=["time-travel", "pids"])
    event = report_from_wire(SessionId(1), agent_pb2.Report(register=wire))
    assert isinstance(event, Register)
    assert (event.features, event.default_user) == (frozenset({Feature.PIDS}), AGENT_USER)


@pytest.mark.parametrize("bad", [{"default_user": "a b"}, {"isolation": ["x"] * 1001}])
def test_hostile_features_are_refused(bad: dict[str, object]) -> None:
    wire = agent_pb2.Register(agent_id="a1", hostname="h", **bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest):
        report_from_wire(SessionId(1), agent_pb2.Report(register=wire))


class Tenant(SecuredWorld):
    """An agent and a framework of Anna, who has no rule for Unix users."""

    def __init__(self, default_user: str) -> None:
        super().__init__("anna client/anna register role:*")
        self.host = self.agent("cpus:4;mem:4GB", agent_id=AgentId("a1"), default_user=default_user)
        self.session = self.owned("anna")

    def returns(self, default_user: str) -> None:
        self.host = self.agent("cpus:4;mem:4GB", agent_id=AgentId("a1"), default_user=default_user)

    def refusal(self, task: TaskInfo) -> str:
        (verdict,) = self.accept(self.session, task).tasks
        assert verdict.error is None or isinstance(verdict.error, PermissionDenied)
        return str(verdict.error or "")


def test_a_uid_of_its_own_needs_no_rule() -> None:
    tenant = Tenant(OWN_USER)
    assert not tenant.refusal(make_task("t1"))


@pytest.mark.parametrize("user", [AGENT_USER, "daemon"])
def test_the_account_that_the_agent_gives_needs_a_rule(user: str) -> None:
    tenant = Tenant(user)
    assert tenant.refusal(make_task("t1")) == f"client/anna may not run-as user:{user}"
    tenant.allow(f"users client/anna run-as user:{user}")
    tenant.pass_time(10.0)
    assert not tenant.refusal(make_task("t2"))


def test_a_named_user_needs_a_rule_everywhere() -> None:
    task = make_task("t1")
    as_nobody = replace(task, command=replace(task.command, user="nobody"))
    assert "user:nobody" in Tenant(OWN_USER).refusal(as_nobody)


def test_a_launch_does_not_become_one_as_the_account_of_the_agent() -> None:
    tenant = Tenant(OWN_USER)
    assert not tenant.refusal(make_task("t1"))
    tenant.returns(AGENT_USER)
    (dropped,) = tenant.updates(tenant.session)
    assert dropped.state is TaskState.DROPPED
    assert "may not run-as user:(agent)" in dropped.message
