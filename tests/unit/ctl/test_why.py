"""The explanation of `croupier why`."""

from __future__ import annotations

import pytest

from croupier.api.objects import as_object
from croupier.ctl.views.framework import framework_lines, state_text, why_lines
from croupier.model.demand import Demand
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from croupier.v1 import framework_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.wire.resources import resources_to_wire
from croupier.wire.roles import settings_to_wire
from croupier.wire.task import demand_to_wire

FRAMEWORK = pb.FrameworkView(
    framework=framework_pb2.FrameworkInfo(framework_id="m-F1", name="train", roles=["ads/prod"]),
    state="connected",
    demands=[demand_to_wire(Demand(Resources.parse("cpus:1;mem:1GB"), 3))],
    used=resources_to_wire(Resources.parse("cpus:4;mem:4GB")),
    offered=resources_to_wire(Resources.parse("cpus:1;mem:1GB")),
    share_ppm=222_222,
    entitlement_ppm=333_333,
    tasks=4,
    offers=1,
)
ADS = pb.RoleView(
    role="ads",
    settings=settings_to_wire(
        RoleSettings(2000, guarantee={"cpus": 2000}, limit={"cpus": 5000}, preemption=False)
    ),
    used=resources_to_wire(Resources.parse("cpus:4;mem:4GB")),
    offered=resources_to_wire(Resources.parse("cpus:1;mem:1GB")),
    share_ppm=250_000,
    entitlement_ppm=666_667,
)
PROD = pb.RoleView(role="ads/prod", settings=settings_to_wire(RoleSettings()), share_ppm=250_000)
LIMIT = pb.PassedOver(
    cause="limit", agents=3, role="ads/prod", about_role="ads", detail="ads holds cpus:5 of cpus:5"
)
ODD = pb.PassedOver(cause="new to us", agents=1, role="ads/prod", detail="agent a1: who knows")


def explained(*reasons: pb.PassedOver, agent: str = "", policy: str = "drf") -> list[str]:
    view = {
        "framework": as_object(FRAMEWORK),
        "roles": [as_object(ADS), as_object(PROD)],
        "reasons": [as_object(reason) for reason in reasons],
        "policy": policy,
        "lined_up_hosts": [],
    }
    return list(why_lines(view, agent))


def test_each_cause_has_advice() -> None:
    assert explained(LIMIT, ODD) == [
        "framework train (m-F1): connected",
        ("  holds cpus:4;mem:4GB in 4 tasks; its share is 0.222, and it is entitled to 0.333"),
        "  is offered cpus:1;mem:1GB in 1 offer",
        "  wants 3 <cpus:1;mem:1GB>",
        (
            "role ads: weight 2, share 0.250, entitled to 0.667, guaranteed cpus:2, "
            "limited to cpus:5, uses cpus:4;mem:4GB and is offered cpus:1;mem:1GB, "
            "preemption off"
        ),
        "role ads/prod: weight 1, share 0.250, entitled to 0.000",
        "",
        "It gets nothing more:",
        "  limit, 3 agents: ads holds cpus:5 of cpus:5",
        "    -> croupier quota set ads --limit ..., or wait until tasks of ads end",
        "  new to us, 1 agent: agent a1: who knows",
    ]


def test_the_causes_of_one_agent() -> None:
    assert explained(LIMIT, agent="host1")[-3:] == [
        "It gets nothing more of host1:",
        "  limit: ads holds cpus:5 of cpus:5",
        "    -> croupier quota set ads --limit ..., or wait until tasks of ads end",
    ]


def test_a_framework_without_causes() -> None:
    assert explained()[-1] == "Nothing keeps it from more."


@pytest.mark.parametrize(
    ("own", "rival", "weighed"),
    [
        ("b", "a", "b"),
        ("ads/prod", "web", "ads"),
        ("ads/prod", "ads/test", "ads/prod"),
        ("ads/prod/x", "ads/test/y", "ads/prod"),
    ],
)
def test_more_weight_is_for_the_framework_that_asks(own: str, rival: str, weighed: str) -> None:
    reason = pb.PassedOver(cause="outranked", role=own, about_role=rival, detail="x")
    line = explained(reason)[-1]
    assert line.endswith(f"more weight: croupier weights set {weighed} ...")
    assert f"croupier weights set {weighed} ..." in explained(reason, policy="random")[-1]


@pytest.mark.parametrize(("own", "rival"), [("a", "a"), ("a", "a/b"), ("*", "*")])
def test_frameworks_of_one_role_are_advised_to_use_another_role(own: str, rival: str) -> None:
    reason = pb.PassedOver(cause="outranked", role=own, about_role=rival, detail="x")
    assert explained(reason)[-1] == (
        "    -> frameworks of one role share alike: a role of its own may have more weight"
    )


def test_first_come_first_served_has_no_weights() -> None:
    reason = pb.PassedOver(cause="outranked", role="b", about_role="a", detail="x")
    lines = explained(reason, policy="fifo")
    assert "first come, first served" in lines[-1]
    assert not any(word in line for line in lines for word in ("weight", "share", "entitled"))
    assert lines[1] == "  holds cpus:4;mem:4GB in 4 tasks"


def test_resources_in_use_need_no_larger_agents() -> None:
    reason = pb.PassedOver(cause="in use", role="b", agents=2, detail="x")
    assert explained(reason)[-1] == "    -> wait for tasks to end, or add agents"


@pytest.mark.parametrize(
    ("queued", "declared", "wants", "state"),
    [
        (0, None, "nothing more", "connected"),
        (0, 0, "nothing more", "connected"),
        (3, None, "3 <cpus:1;mem:1GB>", "connected"),
        (0, 2, "2 <cpus:1;mem:1GB> (but no offers)", "connected, suppressed"),
        (4, 1, "3 <cpus:1;mem:1GB>, 1 <cpus:1;mem:1GB> (but no offers)", "connected, suppressed"),
    ],
)
def test_a_framework_that_suppressed_offers_shows_what_it_wants(
    queued: int, declared: int | None, wants: str, state: str
) -> None:
    view = pb.FrameworkView()
    view.CopyFrom(FRAMEWORK)
    # A lined-up task is queued, and no demand.
    lined_up = int(queued > 3)
    view.suppressed, view.queued, view.tasks, view.lined_up = True, queued, 4 + queued, lined_up
    del view.demands[:]
    waiting = queued - lined_up
    for count in (waiting, declared or 0) if declared is not None else [waiting] if queued else []:
        view.demands.append(demand_to_wire(Demand(Resources.parse("cpus:1;mem:1GB"), count)))
    framework = as_object(view)
    lines = list(framework_lines(framework, "drf"))
    assert f"  wants {wants}" in lines
    assert lines[1].startswith("  holds cpus:4;mem:4GB in 4 tasks")
    assert ("  3 tasks queued" in lines) == (queued == 3)
    assert state_text(framework) == state


@pytest.mark.parametrize(
    ("hosts", "where"),
    [
        (["h1"], "host h1"),
        (["h1", "h2", "h3"], "hosts h1, h2, h3"),
        (["h1", "h2", "h3", "h4", "h5"], "hosts h1, h2, h3, 2 others"),
        ([], "agents"),
    ],
)
def test_lined_up_tasks_are_told_with_their_hosts(hosts: list[str], where: str) -> None:
    view = pb.FrameworkView(queued=10, lined_up=3)
    lines = framework_lines(as_object(view), "drf", hosts=hosts)
    told = f"  10 tasks queued, 3 of them lined up at {where}, behind tasks like them"
    assert told in list(lines)


def test_a_satisfied_framework_wants_nothing_more() -> None:
    met = pb.PassedOver(cause="demand is met", role="ads/prod", detail="it wants nothing more")
    assert explained(met)[-3:-1] == [
        "It wants nothing more:",
        "  demand is met: it wants nothing more",
    ]
