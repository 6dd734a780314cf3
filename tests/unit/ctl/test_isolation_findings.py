"""What `croupier doctor` finds about the isolation of agents."""

from __future__ import annotations

import pytest

from croupier.api.objects import as_object
from croupier.cli.terminal import View
from croupier.ctl.commands.doctor import isolation_findings
from croupier.v1 import framework_pb2
from croupier.v1 import operator_pb2 as pb


def agent(
    *features: str, user: str = "(own)", agent_id: str = "a1", quota: str = "disk-quota"
) -> View:
    described = framework_pb2.AgentDescription(
        agent_id=agent_id, isolation=[*features, *filter(None, [quota])]
    )
    return as_object(pb.AgentView(agent=described, state="connected", default_user=user))


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
