"""The commands about frameworks, as processes, against a scripted master."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from croupier.model.errors import NotFound
from croupier.model.resources import Resources
from croupier.v1 import framework_pb2, task_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.wire.resources import resources_to_wire
from tests.harness.command import croupier
from tests.harness.operators import ScriptedOperator, serving, task_view


@pytest.fixture
async def operator() -> AsyncIterator[ScriptedOperator]:
    async with serving(ScriptedOperator()) as operator:
        used = resources_to_wire(Resources.parse("cpus:8"))
        names = {"m-F1": "train", "m-F2": "web", "m-F3": "web"}
        frameworks = [
            pb.FrameworkView(
                framework=framework_pb2.FrameworkInfo(framework_id=framework_id, name=name),
                state="disconnected",
                used=used,
                removed_in_ms=560_000,
            )
            for framework_id, name in names.items()
        ]
        agent = framework_pb2.AgentDescription(agent_id="m-A1", hostname="h1")
        operator.answers |= {
            pb.ListFrameworksRequest: pb.ListFrameworksResponse(frameworks=frameworks),
            pb.ListAgentsRequest: pb.ListAgentsResponse(agents=[pb.AgentView(agent=agent)]),
            pb.ListTasksRequest: pb.ListTasksResponse(
                tasks=[
                    task_view("t1", task_pb2.TASK_RUNNING),
                    task_view("t0", task_pb2.TASK_FINISHED),
                ]
            ),
            pb.TeardownFrameworkRequest: pb.TeardownFrameworkResponse(tasks=1),
        }
        yield operator


def torn_down(operator: ScriptedOperator) -> list[str]:
    """Return the ids of the frameworks that the master was asked to tear down."""
    kind = pb.TeardownFrameworkRequest
    return [each.framework_id for each in operator.asked if isinstance(each, kind)]


async def test_a_teardown_shows_its_consequences_and_needs_a_yes(
    operator: ScriptedOperator,
) -> None:
    master = ("--master", operator.address)
    shown = [
        "framework train (m-F1) is disconnected, removed in 9 min 20 s; if it is torn down:",
        "  no program can subscribe under its id ever again",
        "  1 task is killed; it holds cpus:8:",
        "    1 task on agent h1 (m-A1)",
    ]
    done = await croupier("framework", "teardown", "m-F1", "--dry-run", *master)
    assert (done.code, done.err, done.out.splitlines()) == (0, "", shown)
    done = await croupier("framework", "teardown", "m-F1", *master)
    assert (done.code, done.out.splitlines()) == (2, shown)
    assert "give --yes" in done.err
    assert torn_down(operator) == []
    done = await croupier("--master", operator.address, "framework", "teardown", "train", "--yes")
    line = "framework train (m-F1) is torn down; 1 task of it will end\n"
    assert (done.code, done.err, done.out) == (0, "", line)
    assert torn_down(operator) == ["m-F1"]


async def test_a_teardown_as_json(operator: ScriptedOperator) -> None:
    words = ("framework", "teardown", "m-F1", "--json", "--master", operator.address)
    done = await croupier(*words, "--dry-run")
    view = json.loads(done.out)
    assert view["framework"]["removed_in_s"] == 560
    assert [each["task_id"] for each in view["tasks"]] == ["t1"]
    assert torn_down(operator) == []
    done = await croupier(*words, "--yes")
    assert json.loads(done.out) == {"framework_id": "m-F1", "tasks_left": 1}


async def test_a_teardown_of_one_framework_only(operator: ScriptedOperator) -> None:
    master = ("--master", operator.address)
    done = await croupier("framework", "teardown", "web", "--yes", *master)
    assert done.code == 1
    ids = "m-F2 (disconnected), m-F3 (disconnected)"
    assert done.err == f"croupier: several frameworks are called 'web'; give an id: {ids}\n"
    assert torn_down(operator) == []


@pytest.mark.parametrize("framework", ["m-F1", "F1", "train"])
async def test_a_framework_is_named_by_its_id_or_name_in_all_commands(
    operator: ScriptedOperator, framework: str
) -> None:
    operator.answers[pb.KillTaskRequest] = pb.KillTaskResponse()
    master = ("--master", operator.address)
    for words in (
        ("kill", "t1"),
        ("logs", "t1"),
        ("files", "t1"),
        ("cp", "t1:a", "-"),
        ("tasks",),
        ("task", "show", "t1"),
    ):
        operator.asked.clear()
        done = await croupier(*words, "--framework", framework, *master)
        asked = [each for each in operator.asked if getattr(each, "framework_id", "")]
        assert {each.framework_id for each in asked} == {"m-F1"}, (words, done)
    done = await croupier("kill", "t1", "--framework", "web", *master)
    assert "give an id: m-F2 (disconnected), m-F3 (disconnected)" in done.err
    # A framework that was removed has tasks, but no name.
    await croupier("kill", "t1", "--framework", "m-F9", *master)
    assert operator.asked[-1].framework_id == "m-F9"
    leader = pb.GetMasterResponse(master_id="my-22dfb2-3", leader=True)
    operator.answers[pb.GetMasterRequest] = leader
    await croupier("kill", "t1", "--framework", "2-F7", *master)
    assert operator.asked[-1].framework_id == "my-22dfb2-2-F7"
    done = await croupier("kill", "t1", "--framework", "no such", *master)
    assert (done.code, "no framework 'no such'" in done.err) == (1, True)


async def test_the_agent_of_a_forgotten_task_is_named_by_its_hostname(
    operator: ScriptedOperator,
) -> None:
    await croupier("files", "t1", "--agent", "h1", "--master", operator.address)
    assert operator.asked[-1].agent_id == "m-A1"


async def test_a_removed_framework_may_be_torn_down_again(operator: ScriptedOperator) -> None:
    operator.answers[pb.ListFrameworksRequest] = pb.ListFrameworksResponse()
    operator.answers[pb.TeardownFrameworkRequest] = pb.TeardownFrameworkResponse()
    words = ("framework", "teardown", "m-F1", "--master", operator.address)
    done = await croupier(*words, "--yes")
    assert (done.code, done.out) == (0, "framework m-F1 is torn down\n")
    operator.answers[pb.TeardownFrameworkRequest] = NotFound("no framework 'm-F1'")
    advice = "; croupier frameworks lists them"
    for more, tail in (("--yes", ""), ("--dry-run", advice)):
        done = await croupier(*words, more)
        assert (done.code, done.err) == (1, f"croupier: no framework 'm-F1'{tail}\n")


async def test_frameworks_shows_the_time_until_removal(operator: ScriptedOperator) -> None:
    done = await croupier("frameworks", "--master", operator.address)
    assert "disconnected, removed in 9 min 20 s" in done.out


async def test_tasks_of_an_unknown_framework(operator: ScriptedOperator) -> None:
    master = ("--master", operator.address)
    operator.answers[pb.ListTasksRequest] = pb.ListTasksResponse()
    done = await croupier("tasks", "--framework", "nosuch", *master)
    assert (done.code, done.out, done.err) == (
        1,
        "",
        "croupier: no framework 'nosuch'; croupier frameworks lists them\n",
    )
    done = await croupier("tasks", "--framework", "RAIN", *master)
    hint = "did you mean train? croupier frameworks lists them"
    assert (done.code, done.err) == (1, f"croupier: no framework 'RAIN'; {hint}\n")
    done = await croupier("tasks", "--framework", "train", *master)
    assert done.code == 0
    asked = [each for each in operator.asked if isinstance(each, pb.ListTasksRequest)]
    assert [each.framework_id for each in asked] == ["nosuch", "RAIN", "m-F1"]
