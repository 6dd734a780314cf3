"""Isolation of agents, and limits and use of tasks, as commands show them."""

from __future__ import annotations

import pytest

from croupier.api.objects import as_object
from croupier.cli.table import lines_of
from croupier.cli.terminal import View
from croupier.ctl.commands.doctor import isolation_findings
from croupier.ctl.views.agent import AGENTS, agent_lines
from croupier.ctl.views.isolation import levels_text
from croupier.ctl.views.task import task_lines
from croupier.model.isolation import Isolation, Limits, Usage
from croupier.model.resources import Resources
from croupier.v1 import framework_pb2, task_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.wire.resources import resources_to_wire
from croupier.wire.task import ISOLATION, LIMITS, USAGE


def agent(
    *features: str, user: str = "(own)", agent_id: str = "a1", quota: str = "disk-quota"
) -> View:
    described = framework_pb2.AgentDescription(
        agent_id=agent_id, isolation=[*features, *filter(None, [quota])]
    )
    return as_object(pb.AgentView(agent=described, state="connected", default_user=user))


def task(
    usage: Usage | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    isolation: Isolation = Isolation(),  # noqa: B008 - frozen
    message: str = "",
) -> View:
    return as_object(
        pb.TaskView(
            framework_id="f1",
            agent_id="a1",
            role="ads",
            task=task_pb2.TaskInfo(
                task_id="t1",
                name="first",
                command=task_pb2.Command(argv=["echo", "hi"]),
                resources=resources_to_wire(Resources.parse("cpus:1;mem:128MB")),
                limits=LIMITS.to_wire(limits),
                isolation=ISOLATION.to_wire(isolation),
                max_completion_ms=90_000,
            ),
            status=task_pb2.TaskStatus(
                state=task_pb2.TASK_FAILED,
                reason=task_pb2.REASON_MEMORY_LIMIT,
                signal=9,
                message=message,
                usage=None if usage is None else USAGE.to_wire(usage),
            ),
        )
    )


@pytest.mark.parametrize(
    ("features", "text"),
    [
        ((), "none"),
        (("files", "users"), "process"),
        (("files", "memory", "namespaces", "images"), "process,cgroup,namespaces,container"),
    ],
)
def test_the_levels_of_an_agent(features: tuple[str, ...], text: str) -> None:
    assert levels_text(features) == text


def test_an_agent_shows_its_features_and_the_user_of_tasks() -> None:
    lines = list(agent_lines(agent("files", "memory", quota="")))
    assert "  isolation: process,cgroup (files, memory)" in lines
    assert "  tasks without a user run as: a uid of their own" in lines
    lines = list(agent_lines(agent(user="(agent)", quota="")))
    assert "  isolation: none" in lines
    assert "  tasks without a user run as: the agent's own account" in lines


def test_an_ended_task_shows_its_use_beside_its_limits() -> None:
    usage = Usage(1500, 2**30, 12, 4096, 3 * 2**20, 10 * 2**20)
    view = task(usage, Limits(mem=1_024_000, pids=20), Isolation(no_network=True), "too much")
    assert list(task_lines(view)) == [
        "task t1 (first): FAILED, code -9 (MEMORY_LIMIT)",
        "  message: too much",
        "  framework: f1, role ads",
        "  agent: a1",
        "  command: echo hi",
        "  resources: cpus:1;mem:128MB",
        "  isolation: no network",
        "  memory: 1.00GB peak, limit 1GB",
        "  disk: 10.0MB",
        "  cpus: 1.5 s, of 1",
        "  processes: 12 peak, limit 20",
        "  read: 4KB",
        "  written: 3.0MB",
        "  time: limit 1 min 30 s",
    ]
    assert view["usage"]["memory_peak_bytes"] == 2**30
    assert view["limits"]["mem"] == 1_024_000


def test_a_task_without_measures_shows_what_it_may_use() -> None:
    view = task()
    assert view["usage"] is None
    assert list(task_lines(view))[-3:] == [
        "  memory: of 128MB",
        "  cpus: of 1",
        "  time: limit 1 min 30 s",
    ]


def test_findings_name_agents_by_their_hosts() -> None:
    (finding,) = isolation_findings([{**agent("files", agent_id="A1"), "hostname": "h1"}])
    assert finding.text.startswith("agent h1 (A1) cannot")


def test_a_healthy_cluster_has_one_finding() -> None:
    (finding,) = isolation_findings([agent("files", "memory"), agent("memory", agent_id="a2")])
    assert finding.outcome == "ok"
    assert not list(isolation_findings([]))


@pytest.mark.parametrize(
    ("agents", "text"),
    [
        ([agent("files", agent_id="a9")], "agent a9 cannot enforce the memory limits of tasks"),
        ([agent("memory", quota="disk")], "agent a1 has no project quotas: tasks can exceed"),
        ([agent("memory", user="root")], "agent a1 runs tasks that name no user as root"),
        ([agent("memory", "users", user="(agent)")], "agent a1 runs tasks that name no user as"),
        ([agent(agent_id=f"a{n}") for n in range(2)], "each of a0, a1 cannot"),
        ([agent(agent_id=f"a{n}") for n in range(7)], "7 agents, such as a0, a1, a2, a3, a4,"),
    ],
)
def test_what_agents_do_not_enforce_is_a_warning(agents: list[View], text: str) -> None:
    (finding,) = isolation_findings(agents)
    assert finding.outcome == "warn"
    assert finding.text.startswith(text)


def test_an_agent_that_is_not_root_runs_no_task_as_root() -> None:
    (finding,) = isolation_findings([agent("memory", user="(agent)")])
    assert finding.outcome == "ok"


def test_the_isolation_of_an_agent_that_a_new_leader_waits_for_is_unknown() -> None:
    view = {**agent(user="(agent)", quota=""), "state": "disconnected"}
    lines = list(agent_lines(view))
    assert "  isolation: unknown until it is connected" in lines
    assert not any("tasks without a user" in line for line in lines)
    assert "none" not in "".join(lines_of(AGENTS, [view], None))
