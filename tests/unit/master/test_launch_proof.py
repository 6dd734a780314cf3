"""Proofs that a master launched a task, and bounds of the resources of agents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from croupier.master.access.cluster_keys import LaunchProofs
from croupier.master.core.access_records import TokenKind
from croupier.master.core.effects import SessionId
from croupier.master.core.events import AgentTask
from croupier.master.core.messages import Registered
from croupier.master.core.token_commands import CreateToken
from croupier.master.session import AgentSession
from croupier.master.wire.from_agent import tasks_from_wire
from croupier.model.agent_orders import LaunchTask
from croupier.model.errors import Conflict, InvalidRequest, NotFound
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.task import TaskState, TaskStatus
from croupier.v1 import agent_pb2 as pb
from croupier.wire.task import status_to_wire, task_to_wire
from tests.harness.secured_world import ADMIN, NOW_MS, SecuredWorld, token
from tests.harness.tenants import Scene
from tests.harness.world import CLUSTER, World, make_task

AGENT = AgentId("a2")


def listed(
    framework_id: str, task_id: str = "x", state: TaskState = TaskState.RUNNING
) -> AgentTask:
    """Return a task without proof, as agent `a2` lists it."""
    place = (FrameworkId(framework_id), TaskId(task_id), AGENT)
    status = TaskStatus(*place, state, sequence=1)
    return AgentTask(
        place[0], make_task(task_id, "cpus:3"), status, (status,), Role("ads/prod"), True
    )


def register(world: World, *tasks: AgentTask, total: str = "cpus:4;mem:4GB") -> SessionId:
    return world.agent(total, "host-a2", agent_id=AGENT, tasks=tasks)


@pytest.mark.parametrize("number", [(1, 2), (2, 1), (77, 1)])
def test_an_id_that_is_assigned_later_is_given_to_no_other(number: tuple[int, int]) -> None:
    framework_id = f"{CLUSTER}-{number[0]}-F{number[1]}"
    scene = Scene()
    # Neither by an agent in a recovery window ...
    scene.state.adopts_unproven_until = 1e9
    register(scene, listed(framework_id))
    assert FrameworkId(framework_id) not in scene.state.frameworks
    # ... nor by a framework without authentication.
    scene.state.settings = replace(scene.state.settings, auth=False)
    scene.restart()
    taken = scene.framework(framework_id=f"{CLUSTER}-{number[0] + 1}-F{number[1]}")
    assert isinstance(scene.error_of(taken), NotFound)
    # In the window, the store that assigned the id may be lost.
    scene.state.adopts_unproven_until = 1e9
    kept = scene.framework(framework_id=f"{CLUSTER}-{number[0] + 1}-F{number[1]}")
    assert scene.framework_id(kept) == f"{CLUSTER}-{number[0] + 1}-F{number[1]}"


# The proof.

PROOFS = LaunchProofs("secret")
ORDER = LaunchTask(FrameworkId("F1"), make_task("t1", "cpus:1;ports:[1-2]"), Role("r"))


def proof() -> str:
    return PROOFS.proven(ORDER, AGENT).proof


def as_listed() -> AgentTask:
    status = TaskStatus(FrameworkId("F1"), TaskId("t1"), AGENT, TaskState.RUNNING, sequence=1)
    return AgentTask(FrameworkId("F1"), ORDER.task, status, (), Role("r"))


def _more(task: AgentTask) -> AgentTask:
    return replace(task, task=make_task("t1", "cpus:2;ports:[1-2]"))


@pytest.mark.parametrize(
    "change",
    [
        _more,
        lambda task: replace(task, task=make_task("t2", "cpus:1;ports:[1-2]")),
        lambda task: replace(task, framework_id=FrameworkId("F2")),
        lambda task: replace(task, role=Role("q")),
        lambda task: replace(task, latest=replace(task.latest, agent_id=AgentId("a3"))),
    ],
)
def test_a_proof_holds_for_one_task_with_its_resources_on_one_agent(
    change: Callable[[AgentTask], AgentTask],
) -> None:
    assert not PROOFS.judged(as_listed(), proof()).is_unproven
    assert PROOFS.judged(change(as_listed()), proof()).is_unproven


@pytest.mark.parametrize(
    "bad", ["", "00" * 16, proof()[:-2], LaunchProofs("").proven(ORDER, AGENT).proof]
)
def test_another_proof_is_none(bad: str) -> None:
    assert PROOFS.judged(as_listed(), bad).is_unproven


async def test_a_launch_carries_its_proof_over_the_wire() -> None:
    session = AgentSession(SessionId(1))
    session.proofs = PROOFS
    assert session.put(Registered(AGENT, 1.0, "m"))
    assert session.put(ORDER)
    _, sent = await session.outbox.take()
    launch = pb.Order.FromString(sent).launch
    assert launch.proof.hex() == proof()
    wire = pb.AgentTask(
        framework_id="F1",
        task=task_to_wire(ORDER.task),
        latest=status_to_wire(as_listed().latest),
        role="r",
        proof=launch.proof,
    )
    (task,) = await tasks_from_wire([wire], PROOFS)
    assert not task.is_unproven
    wire.proof = b"x" * 16
    (task,) = await tasks_from_wire([wire], PROOFS)
    assert task.is_unproven


# The resources of an agent.


def test_a_join_token_bounds_the_agents_that_joined_with_it() -> None:
    world = SecuredWorld()
    bound = Resources.parse("cpus:8")
    own = token("0000000a", "agent/a2", TokenKind.AGENT, max_resources=bound)
    assert not isinstance(world.ask(CreateToken(1, own, NOW_MS, ADMIN)), Exception)
    assert isinstance(world.error_of(register(world, total="cpus:9")), Conflict)
    assert world.error_of(register(world, total="cpus:8;mem:4GB")) is None
    client = token("0000000b", "bob", max_resources=bound)
    assert isinstance(world.ask(CreateToken(2, client, NOW_MS, ADMIN)), InvalidRequest)
