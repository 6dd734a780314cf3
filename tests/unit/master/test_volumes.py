"""Volumes that operators see and release; `scenarios/volumes.txt` tells those of frameworks."""

from __future__ import annotations

from croupier.master.core import calls
from croupier.master.core.events import SessionEnded
from croupier.master.core.hold_commands import CreateHold, HoldStatus, ReleaseHold, hold_status
from croupier.master.core.on_hold import holds_and_orphans
from croupier.model.agent_orders import SetVolume
from croupier.model.demand import Placement
from croupier.model.errors import Conflict, InvalidRequest
from croupier.model.ids import NO_FRAMEWORK, AgentId, FrameworkId, HoldId, Role, short_id
from croupier.model.resources import Resources
from croupier.model.task import TaskState
from croupier.model.volume import Volume
from tests.harness.explained import explained
from tests.harness.invariants import check_state
from tests.harness.secured_world import SecuredWorld
from tests.harness.world import make_task, with_volumes

TOTAL = "cpus:4;mem:4GB;disk:10GB"


def create(role: str = "r", host: str = "h") -> CreateHold:
    wanted = calls.MakeHold(HoldId("v1"), Resources.parse("disk:1GB"), volume=True)
    return CreateHold(1, host, Role(role), wanted, "operator:1")


def test_a_volume_is_a_reason_to_offer_again_what_was_declined() -> None:
    world = SecuredWorld(is_on=False)
    world.agent(TOTAL, "h", features="volumes")
    framework = world.framework("r")
    [declined] = world.offers(framework)
    world.call(framework, calls.Decline((declined.offer_id,), 1000.0))
    world.pass_time(10)
    assert not world.offers(framework)
    made = world.ask(create())
    assert isinstance(made, HoldStatus)
    assert (made.volume, made.is_bounded, made.is_orphan) == (True, False, False)
    [offer] = world.offers(framework)
    assert offer.resources == Resources.parse("cpus:4;mem:4GB;disk:9GB")
    task = with_volumes(make_task("t", "cpus:1;mem:1GB"), "v1@r")
    world.accept(framework, task, offers=[offer.offer_id])
    assert hold_status(world.state, world.state.holds[HoldId("v1")], world.now).tasks == 1
    assert isinstance(world.refused(ReleaseHold(1, HoldId("v1"))), Conflict)
    check_state(world.state)


def test_an_agent_with_quotas_bounds_volumes() -> None:
    world = SecuredWorld(is_on=False)
    session = world.agent(TOTAL, "h", features="volumes,disk-quota")
    made = world.ask(create())
    assert isinstance(made, HoldStatus)
    assert made.is_bounded
    volume = Volume(HoldId("v1"), NO_FRAMEWORK, "r")
    assert world.sent[session][-1] == SetVolume(volume, 1 << 30)


def test_roles_with_long_names_have_no_volumes() -> None:
    world = SecuredWorld(is_on=False)
    world.agent(TOTAL, "h", features="volumes")
    assert isinstance(world.refused(create("r" * 201)), InvalidRequest)


def test_an_orphan_is_removed_once_it_is_released() -> None:
    world = SecuredWorld(is_on=False)
    lost = Volume(HoldId("v1"), FrameworkId("F1"))
    session = world.agent(TOTAL, "h", features="volumes", incomplete=True, volumes=(lost,))
    [orphan] = holds_and_orphans(world.state).values()
    assert orphan.hold_id == f"{world.agent_id(session)}:F1:v1"
    assert SetVolume(lost, 0) not in world.sent[session]
    ended = world.ask(ReleaseHold(1, orphan.hold_id))
    assert isinstance(ended, HoldStatus)
    assert ended.is_orphan
    assert world.sent[session][-1] == SetVolume(lost, 0)
    assert not holds_and_orphans(world.state)
    check_state(world.state)


def test_why_tells_which_volume_a_task_waits_for() -> None:
    world = SecuredWorld(is_on=False)
    session = world.agent(TOTAL, "h", features="volumes")
    agent_id = world.agent_id(session)
    assert isinstance(world.ask(create()), HoldStatus)
    framework = world.framework("r")
    world.do(SessionEnded(session, "the stream broke"))
    task = with_volumes(make_task("t", "cpus:1;mem:1GB"), "v1@r")
    world.call(framework, calls.Submit((task,), None, Placement()))
    framework_id = world.framework_id(framework)

    def reasons() -> list[str]:
        answer = explained(world.state, framework_id, AgentId(""), world.now)
        return [each.detail for each in answer.reasons if each.cause == "its volumes"]

    [reason] = reasons()
    assert reason.startswith(f"task t waits for agent h ({short_id(agent_id)}), which has its vol")
    assert reason.endswith("volumes v1 and is disconnected")
    world.ask(ReleaseHold(1, HoldId("v1")))
    assert reasons() == ["task t waits for volumes v1, which were released"]


def test_a_volume_of_the_same_id_elsewhere_does_not_serve_a_task_that_waits() -> None:
    world = SecuredWorld(is_on=False)
    session = world.agent(TOTAL, "h", features="volumes")
    agent_id = world.agent_id(session)
    assert isinstance(world.ask(create()), HoldStatus)
    framework = world.framework("r", suppressed=True)
    world.do(SessionEnded(session, "the stream broke"))
    world.call(framework, calls.Submit((with_volumes(make_task("t"), "v1@r"),), None, Placement()))
    world.ask(ReleaseHold(1, HoldId("v1")))
    other = world.agent_id(world.agent(TOTAL, "h2", features="volumes"))
    assert isinstance(world.ask(create(host="h2")), HoldStatus)
    world.agent(TOTAL, "h", agent_id=agent_id, features="volumes")
    [end] = [each for each in world.updates(framework) if each.state is TaskState.ERROR]
    assert end.message == f"the volumes of task t are on agent {other}"
