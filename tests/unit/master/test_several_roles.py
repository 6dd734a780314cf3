"""What frameworks with several roles cause elsewhere; `scenarios/several_roles.txt` has more."""

from __future__ import annotations

from croupier.master.core.messages import PreemptRequested
from croupier.master.core.records import FrameworkRecord
from croupier.master.wire.to_framework import event_to_wire
from croupier.model.agent_orders import LaunchTask
from croupier.model.attributes import matches, not_matches
from croupier.model.demand import Demand
from croupier.model.ids import AgentId, Role, TaskId
from croupier.model.resources import Resources
from tests.harness.world import World, make_task

ADS, WEB, DEV = Role("ads/prod"), Role("web"), Role("dev")
UNIT = Resources.parse("cpus:1;mem:1GB")
LARGE = Resources.parse("cpus:4;mem:1GB")


def both() -> tuple[Demand, ...]:
    return (Demand(UNIT, 2), Demand(LARGE, 1, role=WEB))


def test_constraints_by_pattern_choose_agents() -> None:
    world = World()
    for hostname, rack in (("node-1", "r1"), ("node-2", "r9"), ("edge-1", "r1")):
        world.agent("cpus:1;mem:1GB", hostname, f"rack:{rack}")
    tests = (matches("hostname", r"node-\d+"), not_matches("rack", "r[89]"))
    session = world.framework(demands=(Demand(UNIT, None, tests),))
    assert [offer.agent.hostname for offer in world.offers(session)] == ["node-1"]


def test_roles_are_sent_to_agents_and_saved() -> None:
    world = World()
    agent = world.agent("cpus:8;mem:8GB")
    session = world.framework(roles=(ADS, WEB), demands=both())
    (web,) = [offer for offer in world.offers(session) if offer.role == WEB]
    world.accept(session, make_task("t1"), offers=[web.offer_id])
    assert [m.role for m in world.sent[agent] if isinstance(m, LaunchTask)] == [WEB]
    world.framework(roles=(DEV, ADS), framework_id="m-F1")
    record = world.saved[-1]
    assert isinstance(record, FrameworkRecord)
    assert record.roles == (DEV, ADS)


def test_preempt_request_is_converted() -> None:
    asked = PreemptRequested(
        (TaskId("t1"), TaskId("t2")), AgentId("a1"), 2.5, WEB, "role dev lacks cpus:2"
    )
    wire = event_to_wire(asked, {}).preempt_request
    assert list(wire.task_ids) == ["t1", "t2"]
    assert (wire.agent_id, wire.grace_ms, wire.role) == ("a1", 2500, "web")
    assert wire.reason == "role dev lacks cpus:2"
