"""Links to output are for the owner of a task and principals with read-output on its role."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

import pytest

from croupier.master.access.cluster_keys import LinkKeys
from croupier.master.core.calls import Acknowledge
from croupier.master.core.messages import Registered
from croupier.master.services.output_links import MAX_TASKS, links_to, readable_tasks
from croupier.master.wire.to_agent import order_to_wire
from croupier.model.access import AccessPolicy, Action, Permissions, Rule
from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.principal import ANONYMOUS, Principal, PrincipalName
from croupier.net.output_links import VALID_S, check_link
from croupier.v1 import operator_pb2 as pb
from tests.harness.world import World, make_task

NOW = 1_700_000_000.0
KEYS = LinkKeys("secret of the cluster")
OWNER, READER, OTHER = (Principal(PrincipalName(f"client/{name}")) for name in ("o", "r", "x"))
POLICY = AccessPolicy(
    True,
    rules={
        rule.name: rule
        for rule in (
            Rule("ads", READER.name, (Action.READ_OUTPUT,), "role:ads"),
            Rule("web", OTHER.name, (Action.VIEW, Action.KILL, Action.READ_OUTPUT), "role:web"),
        )
    },
)


@dataclass
class Cluster:
    """A framework with two tasks; the second has ended and was acknowledged."""

    world: World
    agent_id: AgentId
    framework_id: FrameworkId

    async def ask(
        self,
        principal: Principal,
        *task_ids: str,
        agent_id: str = "",
        policy: AccessPolicy = POLICY,
    ) -> pb.GetOutputLinksResponse:
        request = pb.GetOutputLinksRequest()
        for task_id in task_ids:
            request.tasks.add(framework_id=self.framework_id, task_id=task_id, agent_id=agent_id)
        permissions = Permissions(policy, principal)
        keys = KEYS if policy.is_on else None
        return await links_to(readable_tasks(self.world.state, request, permissions), keys, NOW)


@pytest.fixture
def cluster() -> Cluster:
    world = World()
    session = world.framework("ads")
    framework_id = world.framework_id(session)
    world.state.set_owner(world.state.frameworks[framework_id], OWNER.name)
    agent = world.agent("cpus:4;mem:4GB")
    world.accept(session, make_task("t1"), make_task("t2"))
    world.finish(agent, framework_id, "t2")
    agent_id = world.agent_id(agent)
    world.call(session, Acknowledge(((agent_id, TaskId("t2"), 2),)))
    assert world.state.ended.get(framework_id, TaskId("t2"))
    return Cluster(world, agent_id, framework_id)


@pytest.mark.parametrize(
    ("principal", "is_allowed"), [(OWNER, True), (READER, True), (OTHER, False), (ANONYMOUS, False)]
)
async def test_links_are_for_the_owner_and_readers_of_the_role(
    cluster: Cluster, principal: Principal, is_allowed: bool
) -> None:
    answer = await cluster.ask(principal, "t1", "t2", "never")
    assert [each.task_id for each in answer.links] == (["t1", "t2"] if is_allowed else [])
    for each in answer.links:
        assert (each.agent_id, each.valid_for_ms) == (cluster.agent_id, VALID_S * 1000)
        task = f"{cluster.framework_id}/{each.task_id}"
        for path, link in (
            (f"/output/{task}/stdout", each.stdout),
            (f"/output/{task}/stderr", each.stderr),
            (f"/usage/{task}", each.usage),
        ):
            parts = urlsplit(link)
            query = dict(parse_qsl(parts.query))
            assert parts.path == path
            key = KEYS.key_of(cluster.agent_id)
            check_link(key, parts.path, query["expires"], query["signature"], NOW)


@pytest.mark.parametrize(("principal", "is_allowed"), [(OWNER, True), (OTHER, False)])
async def test_a_forgotten_task_is_found_by_its_agent(
    cluster: Cluster, principal: Principal, is_allowed: bool
) -> None:
    assert not (await cluster.ask(principal, "forgotten", agent_id="unknown")).links
    found = (await cluster.ask(principal, "forgotten", agent_id=cluster.agent_id)).links
    assert bool(found) == is_allowed


async def test_without_authentication_links_are_plain_paths(cluster: Cluster) -> None:
    (link,) = (await cluster.ask(ANONYMOUS, "t1", policy=AccessPolicy())).links
    assert link.stdout == f"/output/{cluster.framework_id}/t1/stdout"
    assert link.usage == f"/usage/{cluster.framework_id}/t1"
    assert link.valid_for_ms == 0


async def test_a_call_is_for_a_thousand_tasks(cluster: Cluster) -> None:
    with pytest.raises(InvalidRequest, match="1,000"):
        await cluster.ask(OWNER, *map(str, range(MAX_TASKS + 1)))


def test_the_key_goes_to_its_agent_and_nowhere_else() -> None:
    message = Registered(AgentId("A1"), 15.0, "m")
    order = order_to_wire(message, links=KEYS).registered
    assert (order.link_key, order.requires_links) == (KEYS.key_of(AgentId("A1")), True)
    assert order.link_key != KEYS.key_of(AgentId("A2"))
    plain = order_to_wire(message).registered
    assert (plain.link_key, plain.requires_links) == (b"", False)
    assert "secret" not in repr(KEYS)
