"""The commands that show, change and explain roles, as processes, against a scripted master."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from croupier.model.roles import RoleSettings
from croupier.v1 import framework_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.wire.roles import settings_from_wire, settings_to_wire
from tests.harness.command import Ended, croupier
from tests.harness.operators import ScriptedOperator, serving


def role(name: str, settings: RoleSettings | None = None, entitled: int = 0) -> pb.RoleView:
    return pb.RoleView(
        role=name, settings=settings_to_wire(settings or RoleSettings()), entitlement_ppm=entitled
    )


@pytest.fixture
async def operator() -> AsyncIterator[ScriptedOperator]:
    async with serving(ScriptedOperator()) as operator:
        operator.answers[pb.ListRolesRequest] = pb.ListRolesResponse(
            roles=[
                role("ads", RoleSettings(2000, {"gpus": 3000}), 666_667),
                role("ads/prod", RoleSettings(limit={"cpus": 0}), 666_667),
                role("web", entitled=333_333),
            ]
        )
        operator.answers[pb.UpdateRolesRequest] = pb.UpdateRolesResponse(
            roles=[
                pb.RoleMoved(
                    before=role("web", entitled=333_333),
                    after=role("web", RoleSettings(2000), 500_000),
                )
            ]
        )
        yield operator


async def test_weights_are_listed(operator: ScriptedOperator) -> None:
    for words in (
        ["weights", "list", "--master", operator.address],
        ["weights", "--master", operator.address],
        ["--master", operator.address, "weights"],
    ):
        done = await croupier(*words)
        assert (done.code, done.err) == (0, "")
        assert done.out.splitlines() == [
            "ROLE      WEIGHT  RESOURCES  SHARE  ENTITLED",
            "ads            2  gpus=3     0.000     0.667",
            "ads/prod       1  -          0.000     0.667",
            "web            1  -          0.000     0.333",
        ]


async def test_only_roles_with_quotas_are_listed(operator: ScriptedOperator) -> None:
    done = await croupier("quota", "--json", CROUPIER_MASTER=operator.address)
    assert [view["role"] for view in json.loads(done.out)] == ["ads/prod"]
    operator.answers[pb.ListRolesRequest] = pb.ListRolesResponse(roles=[role("web")])
    done = await croupier("quota", CROUPIER_MASTER=operator.address)
    line = "no role has a guarantee, a limit or a preemption setting\n"
    assert done == Ended(0, line, "")


async def test_a_role_without_settings_and_frameworks_is_shown(operator: ScriptedOperator) -> None:
    done = await croupier("weights", "get", "ads", "--json", CROUPIER_MASTER=operator.address)
    assert json.loads(done.out)["weight"] == 2
    done = await croupier("quota", "get", "absent", "--json", CROUPIER_MASTER=operator.address)
    assert json.loads(done.out)["limit"] == {"text": "", "milli": {}}
    done = await croupier("quota", "get", "ads/prod", CROUPIER_MASTER=operator.address)
    assert done.out.splitlines()[1].split() == ["ads/prod", "-", "cpus:0", "-", "-", "-"]


async def test_a_weight_is_set(operator: ScriptedOperator) -> None:
    words = ["weights", "set", "web", "2", "--resource", "gpus=0.5", "--dry-run"]
    done = await croupier("--master", operator.address, *words)
    line = "web: weight 1 -> 2, entitled to 0.333 -> 0.500; its share is 0.000\n"
    assert done == Ended(0, line, "")
    request = operator.asked[-1]
    assert (request.dry_run, request.force) == (True, False)
    (change,) = request.changes
    assert settings_from_wire(change.settings) == RoleSettings(2000, {"gpus": 500})
    assert list(change.parts) == [pb.RoleChange.PART_WEIGHT, pb.RoleChange.PART_RESOURCE_WEIGHTS]


async def test_a_dry_run_is_marked_as_one(operator: ScriptedOperator) -> None:
    operator.answers[pb.UpdateRolesRequest].dry_run = True
    done = await croupier("weights", "set", "web", "2", CROUPIER_MASTER=operator.address)
    assert done.out.splitlines()[0] == "nothing was changed; this would change:"
    words = ["weights", "remove", "web", "--json", "--dry-run"]
    done = await croupier(*words, CROUPIER_MASTER=operator.address)
    view = json.loads(done.out)
    assert (view["dry_run"], view["others"]) == (True, 0)
    assert view["roles"][0]["after"]["weight_milli"] == 2000


async def test_a_quota_is_set_and_removed(operator: ScriptedOperator) -> None:
    words = ["quota", "set", "web", "--guarantee", "cpus:1", "--limit", "cpus:4;mem:8GB"]
    done = await croupier(
        *words, "--preemption", "off", "--force", CROUPIER_MASTER=operator.address
    )
    assert (done.code, done.err) == (0, "")
    request = operator.asked[-1]
    assert request.force
    assert settings_from_wire(request.changes[0].settings) == RoleSettings(
        guarantee={"cpus": 1000}, limit={"cpus": 4000, "mem": 8192_000}, preemption=False
    )
    await croupier("quota", "remove", "web", CROUPIER_MASTER=operator.address)
    assert not operator.asked[-1].changes[0].HasField("settings")


async def test_why_takes_an_id_or_a_name_that_only_one_has(operator: ScriptedOperator) -> None:
    names = {"f1": "train", "f2": "serve", "f3": "serve"}
    operator.answers[pb.ListFrameworksRequest] = pb.ListFrameworksResponse(
        frameworks=[
            pb.FrameworkView(
                framework=framework_pb2.FrameworkInfo(framework_id=framework_id, name=name)
            )
            for framework_id, name in names.items()
        ]
    )
    operator.answers[pb.ListAgentsRequest] = pb.ListAgentsResponse(
        agents=[pb.AgentView(agent=framework_pb2.AgentDescription(agent_id="a1", hostname="host1"))]
    )
    operator.answers[pb.ExplainRequest] = pb.ExplainResponse(
        framework=pb.FrameworkView(
            framework=framework_pb2.FrameworkInfo(framework_id="f1", name="tr\x1bain", roles=["*"]),
            state="connected",
        ),
        roles=[role("*")],
        reasons=[pb.PassedOver(cause="suppressed", role="*", detail="in role *")],
    )
    done = await croupier("why", "train", "--agent", "host1", CROUPIER_MASTER=operator.address)
    assert (done.code, done.err) == (0, "")
    assert operator.asked[-1] == pb.ExplainRequest(framework_id="f1", agent_id="a1")
    assert done.out.splitlines()[0] == "framework tr\\x1bain (f1): connected"
    assert done.out.splitlines()[-2:] == [
        "  suppressed: in role *",
        "    -> the framework suppressed its offers: it has to revive",
    ]
    done = await croupier("why", "f2", "--json", CROUPIER_MASTER=operator.address)
    assert operator.asked[-1] == pb.ExplainRequest(framework_id="f2")
    assert json.loads(done.out)["reasons"][0]["cause"] == "suppressed"
    done = await croupier("why", "serve", CROUPIER_MASTER=operator.address)
    line = "croupier: several frameworks are called 'serve'; give an id: f2 (), f3 ()\n"
    assert done == Ended(1, "", line)
    done = await croupier("why", "absent", CROUPIER_MASTER=operator.address)
    assert done == Ended(1, "", "croupier: no framework 'absent'; croupier frameworks lists them\n")
    done = await croupier("why", "f1", "--agent", "x", CROUPIER_MASTER=operator.address)
    text = "croupier: no agent has the id or hostname 'x'; croupier agents lists them\n"
    assert done == Ended(1, "", text)
