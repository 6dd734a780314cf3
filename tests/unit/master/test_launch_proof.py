"""A listed task is adopted if the ledger has it, or with proof that a master launched it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from croupier.master.access.cluster_keys import LaunchProofs
from croupier.master.core import calls
from croupier.master.core.access_records import TokenKind
from croupier.master.core.effects import SessionId
from croupier.master.core.events import AgentTask
from croupier.master.core.facts import AgentRefused, TasksUnproven
from croupier.master.core.messages import Registered
from croupier.master.core.settings import Settings
from croupier.master.core.token_commands import CreateToken
from croupier.master.session import AgentSession
from croupier.master.wire.from_agent import tasks_from_wire
from croupier.model.agent_orders import AcknowledgeUpdate, KillTask, LaunchTask
from croupier.model.demand import Placement
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


def orders(world: World, session: SessionId) -> list[object]:
    return [each for each in world.sent[session] if not isinstance(each, Registered)]


@pytest.mark.parametrize("who", ["annas", "unknown"])
def test_an_invented_task_is_ended_and_charges_no_framework(who: str) -> None:
    scene = Scene()
    framework_id = scene.annas if who == "annas" else FrameworkId("other-1-F1")
    known = set(scene.state.frameworks)
    used = repr(scene.state.allocator.queries.used_by_role())
    session = register(scene, listed(framework_id))
    assert set(scene.state.frameworks) == known
    assert repr(scene.state.allocator.queries.used_by_role()) == used
    assert TaskId("x") not in scene.state.frameworks[scene.annas].tasks
    kill, ack = orders(scene, session)
    assert isinstance(kill, KillTask)
    assert (kill.framework_id, kill.task_id) == (framework_id, "x")
    assert ack == AcknowledgeUpdate(framework_id, TaskId("x"), 1)
    assert TasksUnproven(AGENT, "host-a2", 1, f"{framework_id}/x") in scene.facts


def test_a_proven_task_is_adopted() -> None:
    world = SecuredWorld()
    register(world, replace(listed("other-1-F1"), is_unproven=False))
    assert TaskId("x") in world.state.frameworks[FrameworkId("other-1-F1")].tasks
    assert not [each for each in world.facts if isinstance(each, TasksUnproven)]


def test_the_ledger_proves_a_task_of_an_older_release() -> None:
    scene = Scene()
    task = scene.state.frameworks[scene.annas].tasks[TaskId("t1")]
    scene.restart()
    status = TaskStatus(scene.annas, TaskId("t1"), AgentId("a1"), TaskState.RUNNING, sequence=1)
    report = AgentTask(scene.annas, task.info, status, (status,), is_unproven=True)
    scene.as_principal("agent/a1").agent("cpus:4;mem:4GB", agent_id="a1", tasks=(report,))
    assert scene.state.frameworks[scene.annas].tasks[TaskId("t1")].state is TaskState.RUNNING


def test_an_agent_that_never_had_a_task_of_the_ledger_registers() -> None:
    """It answered a KILL of a task unknown to it by GONE, without the resources."""
    scene = Scene()
    scene.restart()
    place = (scene.annas, TaskId("t1"), AgentId("a1"))
    status = TaskStatus(*place, TaskState.GONE, sequence=1)
    report = AgentTask(scene.annas, make_task("t1", ""), status, (status,), is_unproven=True)
    session = scene.as_principal("agent/a1").agent("cpus:4;mem:4GB", agent_id="a1", tasks=(report,))
    assert isinstance(scene.sent[session][0], Registered)
    assert scene.state.frameworks[scene.annas].tasks[TaskId("t1")].state is TaskState.GONE


def test_a_queued_task_is_not_ended_by_an_agent_that_claims_it() -> None:
    world = World()
    session = world.framework("ads/prod")
    task = make_task("x", "cpus:3")
    world.call(session, calls.Submit((task,), Role("ads/prod"), Placement()))
    agent = register(world, listed(world.framework_id(session)))
    # The agent's own claim is refused, and the task is placed by the master.
    assert [type(each) for each in orders(world, agent)] == [
        KillTask,
        AcknowledgeUpdate,
        LaunchTask,
    ]


def test_an_unproven_end_is_acknowledged_and_not_reported() -> None:
    scene = Scene()
    session = register(scene, listed(scene.annas, state=TaskState.FINISHED))
    assert orders(scene, session) == [AcknowledgeUpdate(scene.annas, TaskId("x"), 1)]
    assert not [each for each in scene.updates(scene.session) if each.task_id == "x"]
    assert not [each for each in scene.facts if isinstance(each, TasksUnproven)]


def test_a_recovery_window_adopts_until_it_ends() -> None:
    world = SecuredWorld(settings=Settings(adopt_unproven_s=10.0))
    world.restart()
    world.pass_time(9.0)
    register(world, listed("other-1-F1"))
    assert world.state.frameworks[FrameworkId("other-1-F1")].tasks
    world.pass_time(1.0)
    register(world, listed("other-1-F2"))
    assert FrameworkId("other-1-F2") not in world.state.frameworks


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


@pytest.mark.parametrize("total", ["cpus:1000000", "cpus:4096.001", "cpus:1;mem:65TB", "gpus:5000"])
def test_an_unlikely_machine_is_refused(total: str) -> None:
    world = World()
    session = register(world, total=total)
    error = world.closed[session]
    assert isinstance(error, Conflict)
    assert "--max-agent-resources" in str(error)
    assert any(isinstance(fact, AgentRefused) for fact in world.facts)
    assert not world.state.agents


def test_a_bound_holds_for_named_resources_only() -> None:
    world = World(settings=Settings(max_agent=Resources.parse("cpus:8")))
    assert register(world, total="cpus:8;mem:1000TB;foo:9;ports:[1-9]") not in world.closed
    assert register(world, total="cpus:9") in world.closed


def test_a_join_token_bounds_the_agents_that_joined_with_it() -> None:
    world = SecuredWorld()
    bound = Resources.parse("cpus:8")
    own = token("0000000a", "agent/a2", TokenKind.AGENT, max_resources=bound)
    assert not isinstance(world.ask(CreateToken(1, own, NOW_MS, ADMIN)), Exception)
    assert isinstance(world.error_of(register(world, total="cpus:9")), Conflict)
    assert world.error_of(register(world, total="cpus:8;mem:4GB")) is None
    client = token("0000000b", "bob", max_resources=bound)
    assert isinstance(world.ask(CreateToken(2, client, NOW_MS, ADMIN)), InvalidRequest)
