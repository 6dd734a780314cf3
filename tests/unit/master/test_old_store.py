"""Masters that start with an old copy of their store, or that were deposed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.master.allocator import Allocator
from croupier.master.core import calls
from croupier.master.core.effects import Deposed, Happened, SessionId
from croupier.master.core.events import AgentTask, Claim, Register
from croupier.master.core.facts import AgentRefused
from croupier.master.core.records import (
    AgentRecord,
    ForgetFramework,
    FrameworkRecord,
    MasterRecord,
    PastTerm,
    QueuePlace,
    Requeue,
    TaskRecord,
    task_key,
)
from croupier.master.core.registry import Registry
from croupier.master.core.settings import Settings
from croupier.master.core.state_recovery import recover_state
from croupier.master.leadership.lineage import Names, next_record
from croupier.model.agent_orders import KillTask
from croupier.model.demand import ANYWHERE
from croupier.model.errors import Conflict, NotLeader, Removed
from croupier.model.ids import AgentId, FrameworkId, OfferId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.store_position import StorePosition
from croupier.model.task import Reason, Source, TaskState, TaskStatus
from croupier.sim.replay.result import Verifier
from tests.harness.recorded import make_head
from tests.harness.restarting import ALL, T1, Scene
from tests.harness.world import CLUSTER, World, make_task

BEFORE = MasterRecord(CLUSTER, 5, "secret", terms=(PastTerm(5, "five", 10),))
KNOWN, LIVE, REMOVED = (FrameworkId(f"{CLUSTER}-5-F{number}") for number in (1, 2, 3))


def registry() -> Registry:
    """Return the old copy, made before the second framework subscribed."""
    known = FrameworkRecord(KNOWN, "f", (Role("r"),), 600.0, client_id="c1")
    return Registry(BEFORE, frameworks={KNOWN: known})


def after_old_store(epoch: int) -> MasterRecord:
    """Return the record of the next term, after an agent has seen a master of that epoch."""
    given_up = StorePosition(0, epoch, "lost", 99)
    return next_record(BEFORE, 10, Names("x", "y", "next"), given_up)


def old_store(settings: Settings | None = None) -> World:
    master_id = after_old_store(5).master_id
    return World(
        state=recover_state(registry(), master_id, settings or Settings(), Allocator(), 0.0)
    )


def remove(world: World, framework_id: str) -> None:
    """Reconnect the framework and tear it down."""
    world.call(world.framework(framework_id=framework_id), calls.Teardown())


def agent_with_task_of(world: World, framework_id: FrameworkId) -> SessionId:
    agent_id = AgentId(f"{CLUSTER}-5-A1")
    status = TaskStatus(framework_id, TaskId("t1"), agent_id, TaskState.RUNNING, sequence=1)
    task = AgentTask(framework_id, make_task("t1"), status)
    return world.agent("cpus:4;mem:4GB", agent_id=agent_id, tasks=(task,))


@pytest.mark.parametrize("restarted", [False, True])
def test_removal_of_an_unrecorded_framework_removes_no_other(restarted: bool) -> None:
    world = old_store()
    remove(world, REMOVED)
    if restarted:
        world.restart()
    agent = agent_with_task_of(world, LIVE)
    assert not [each for each in world.sent[agent] if isinstance(each, KillTask)]
    assert world.framework(framework_id=LIVE) not in world.closed
    again = world.framework(framework_id=REMOVED)
    assert isinstance(world.closed[again], Removed)


@pytest.mark.parametrize("restarted", [False, True])
def test_removal_of_a_recorded_framework_refuses_all_lower_ids(restarted: bool) -> None:
    world = old_store()
    remove(world, KNOWN)
    first, second = (world.framework_id(world.framework()) for _ in range(2))
    for framework_id in (second, first):
        remove(world, framework_id)
    if restarted:
        world.restart()
    for framework_id in (first, second):
        again = world.framework(framework_id=framework_id)
        assert isinstance(world.closed[again], Removed)


def test_removed_unrecorded_frameworks_are_bounded() -> None:
    world = old_store(Settings(removed_frameworks=2))
    ids = [FrameworkId(f"{CLUSTER}-5-F{number}") for number in (4, 3, 2)]
    for framework_id in ids[:2]:
        remove(world, framework_id)
    # There is no room for another id: from here on unknown frameworks are refused.
    assert list(world.state.removed) == ids[:2]
    for framework_id in ids:
        again = world.framework(framework_id=framework_id)
        assert isinstance(world.closed[again], Removed)
    assert not [each for each in world.saved if isinstance(each, ForgetFramework)]
    assert world.framework() not in world.closed


@pytest.mark.parametrize("epoch", [5, 9])
def test_the_epoch_of_the_state_is_that_of_the_term(epoch: int) -> None:
    record = after_old_store(epoch)
    head = replace(make_head(registry=registry()), master_id=record.master_id)
    replayed = Verifier(head).state
    assert replayed.epoch == record.epoch == epoch + 1
    assert replayed.has_issued(OfferId(f"{CLUSTER}-{epoch}-O1"))
    world = World(state=replayed)
    for _ in range(2):
        session = world.framework()
        world.call(session, calls.Teardown())
    assert FrameworkId(f"{record.master_id}-F1") in replayed.removed
    assert replayed.removed.highest(record.epoch) == 2


# A lined-up task whose agent is not in the store any more.


F, ROLE = FrameworkId("F1"), Role("r")


def test_it_is_gone_since_it_may_have_run_there() -> None:
    registry = Registry(MasterRecord(CLUSTER, 1))
    registry.apply(FrameworkRecord(F, "f", (ROLE,), 600.0))
    place = QueuePlace(ANYWHERE, 1)
    registry.apply(TaskRecord(F, make_task("t1"), AgentId("away"), ROLE, queued=place))
    state = recover_state(registry, f"{CLUSTER}-2", Settings(), Allocator(), 0.0)
    (task,) = state.frameworks[F].tasks.values()
    assert (task.state, task.status.reason) == (TaskState.GONE, Reason.AGENT_UNKNOWN)


def test_a_later_run_of_a_requeued_task_keeps_its_ports() -> None:
    """The copy was made in an earlier run, which had others on that agent."""
    host, unit = AgentId("a"), "cpus:1;mem:1GB"
    earlier, later = (make_task("t1", f"{unit};ports:[{port}-{port}]") for port in (1, 2))
    registry = Registry(MasterRecord(CLUSTER, 1))
    registry.apply(AgentRecord(host, "h", total=Resources.parse("cpus:4;mem:4GB")))
    registry.apply(FrameworkRecord(F, "f", (ROLE,), 600.0))
    requeue = Requeue(QueuePlace(ANYWHERE, 1))
    registry.apply(TaskRecord(F, earlier, host, ROLE, requeue=requeue))
    state = recover_state(registry, f"{CLUSTER}-2", Settings(), Allocator(), 0.0)
    world = World(state=state)
    runs = TaskStatus(F, T1, host, TaskState.RUNNING, Source.EXECUTOR, sequence=5)
    reported = AgentTask(F, later, runs, (runs,))
    session = world.agent("cpus:4;mem:4GB;ports:[1-9]", agent_id=host, tasks=(reported,))
    assert session not in world.closed
    (task,) = state.frameworks[F].tasks.values()
    assert (task.is_active, task.state, task.info.resources) == (
        True,
        TaskState.RUNNING,
        later.resources,
    )
    free = state.allocator.queries.free(host)
    assert free == Resources.parse("cpus:3;mem:3GB;ports:[1,3-9]")


# Masters that were deposed, and removals; `scenarios/failover` tells what survives a failover.


def test_master_that_learns_of_a_newer_one_is_deposed() -> None:
    scene = Scene()
    agent_id, total = AgentId("A9"), Resources.parse(ALL)
    register = Register(SessionId(99), agent_id, "h", total, {}, claim=Claim.NEWER)
    effects = scene.do(register)
    assert any(isinstance(effect, Deposed) for effect in effects)
    assert agent_id not in scene.state.agents
    assert isinstance(scene.closed.get(SessionId(99)), NotLeader)


@pytest.mark.parametrize("claim", [Claim.UNPROVEN, Claim.FOREIGN])
def test_unproven_claim_does_not_depose_the_master(claim: Claim) -> None:
    scene = Scene()
    agent_id, total = AgentId("A9"), Resources.parse(ALL)
    register = Register(SessionId(99), agent_id, "h", total, {}, claim=claim, objection="because")
    effects = scene.do(register)
    refused = AgentRefused(agent_id, "h", "because")
    assert not any(isinstance(effect, Deposed) for effect in effects)
    assert Happened(refused) in effects
    assert agent_id not in scene.state.agents
    assert isinstance(scene.closed.get(SessionId(99)), Conflict)


def test_rate_limit_of_removals_tolerates_rounding() -> None:
    settings = replace(Settings(), removals=1, removal_window_s=0.1)
    world = World(settings=settings)
    # In floats, 7.7 + 0.1 - 0.1 is less than 7.7.
    world.now = 7.7 - (settings.agent_timeout_s - settings.suspect_s(0))
    for number in range(3):
        world.end_session(world.agent(ALL, f"h{number}"))
    world.pass_time(200.0)
    assert len(world.state.unreachable) == 3


def test_a_task_that_an_older_store_has_lined_up_elsewhere_is_lost_once_it_is_listed() -> None:
    scene = Scene()
    scene.call(scene.session, calls.Submit((make_task("t1", "cpus:9"),)))
    other = scene.agent_id(scene.agent(ALL, "other"))
    # In the store it is lined up there; later it ran on the first agent, which the store has lost.
    key = task_key(scene.owner, T1)
    scene.ledger[key] = replace(scene.ledger[key], agent_id=other)
    scene.saved.append(scene.ledger[key])
    scene.restart()
    scene.framework_back()
    scene.agent_back(TaskState.RUNNING, TaskState.FINISHED, waiting=1, claim=Claim.GIVEN_UP)
    (status,) = scene.task_updates()
    assert (status.state, status.reason) == (TaskState.LOST, Reason.TASK_UNKNOWN)
    scene.agent(ALL, "other", agent_id=other)
    assert not scene.state.agents[other].line
