"""Reservations over time: their agents, whom they keep away, and what others have to end."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from croupier.master.allocator.starvation import PreemptionRules
from croupier.master.core import calls
from croupier.master.core.effects import SessionId
from croupier.master.core.events import AccountingDue, Received
from croupier.master.core.facts import ReservationChanged
from croupier.master.core.messages import PreemptRequested, Rescinded
from croupier.master.core.records import ForgetReservation
from croupier.master.core.reservation_commands import (
    CreateReservation,
    DeleteReservation,
    ReservationStatus,
)
from croupier.master.core.reservations import NewReservation, ReservationState, Times
from croupier.master.core.settings import Settings
from croupier.model.attributes import equals
from croupier.model.demand import Demand
from croupier.model.errors import Conflict, CroupierError, InvalidRequest, NotFound
from croupier.model.ids import AgentId, HoldId, ReservationId, Role, TaskId
from croupier.model.preemption import TaskPreemption
from croupier.model.reservation import DAY_MS
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from croupier.model.task import Reason, TaskInfo
from tests.harness.secured_world import NOW_MS, SecuredWorld, caller
from tests.harness.world import make_task

GRACE_S = 10.0
PREEMPTING = Settings(preemption=PreemptionRules(True, grace_s=GRACE_S))
# From a minute on, for a minute; others are bound 30 s before.
WANTED = NewReservation(Role("r"), 1, Times(NOW_MS + 60_000, NOW_MS + 120_000), notice_ms=30_000)


def a_world(agents: int = 2, settings: Settings = PREEMPTING) -> SecuredWorld:
    world = SecuredWorld(is_on=False, settings=settings)
    for number in range(1, agents + 1):
        world.agent("cpus:4;mem:4GB", f"h{number}", f"number:{number}", agent_id=f"a{number}")
    return world


def create(wanted: NewReservation = WANTED, at_ms: int = 0, name: str = "") -> CreateReservation:
    made_by = caller(name)
    return CreateReservation(1, wanted, NOW_MS + at_ms, "operator:1", made_by)


def made(world: SecuredWorld, wanted: NewReservation = WANTED) -> ReservationStatus:
    answer = world.ask(create(wanted, round(1000 * world.now)))
    assert isinstance(answer, ReservationStatus), answer
    return answer


def wait(world: SecuredWorld, seconds: float) -> None:
    """Let time pass, in which agents and frameworks are heard from."""
    end = world.now + seconds
    while world.now < end:
        world.pass_time(min(20.0, end - world.now))
        for session in list(world.state.peers):
            world.do(Received(session))


def state_of(world: SecuredWorld) -> str:
    [reservation] = world.state.reservations.values()
    return reservation.state.value


def changes(world: SecuredWorld) -> list[str]:
    return [fact.change for fact in world.facts if isinstance(fact, ReservationChanged)]


def timed(task_id: str, seconds: int = 0) -> TaskInfo:
    return replace(make_task(task_id, "cpus:4"), max_completion_ms=1000 * seconds)


def submitter(world: SecuredWorld, *tasks: TaskInfo, role: str = "other") -> SessionId:
    session = world.framework(role, suppressed=True)
    world.call(session, calls.Submit(tasks))
    return session


def states(world: SecuredWorld) -> dict[str, str]:
    return {
        task_id: task.state.name
        for framework in world.state.frameworks.values()
        for task_id, task in framework.tasks.items()
    }


def test_it_is_announced_begins_and_ends() -> None:
    world = a_world(1)
    assert made(world).agents == (("a1", "h1"),)
    other = world.framework("other", "cpus:1", offer_lease_s=60.0)
    wait(world, 29.9)
    assert state_of(world) == "waiting"
    [offer] = world.offers(other)
    wait(world, 0.1)
    # It is announced: what others are offered is taken back, and no more is offered.
    assert state_of(world) == "announced"
    assert world.offers(other) == []
    rescinded = Rescinded(offer.offer_id, "the agent is reserved for another role")
    assert world.sent[other][-1] == rescinded
    wait(world, 30)
    assert state_of(world) == "active"
    owner = world.framework("r/below", "cpus:1")
    assert world.offers(owner)
    world.decline(owner, 300.0)
    assert world.offers(other) == []
    wait(world, 60)
    assert not world.state.reservations
    assert world.offers(other)
    assert changes(world) == ["announced", "began", "over"]
    assert world.saved[-1] == ForgetReservation(made_id(world))


def made_id(world: SecuredWorld) -> ReservationId:
    [made_fact] = [fact for fact in world.facts if type(fact).__name__ == "ReservationMade"]
    found: ReservationId = getattr(made_fact, "reservation_id")  # noqa: B009 - one kind of fact
    return found


def test_others_run_what_ends_in_time() -> None:
    world = a_world(1)
    made(world, replace(WANTED, notice_ms=60_000))
    other = submitter(world, timed("long", 51), timed("endless"), timed("short", 40))
    assert states(world) == {"long": "QUEUED", "endless": "QUEUED", "short": "STAGING"}
    session = world.state.agents[AgentId("a1")].session
    assert session is not None
    world.finish(session, world.framework_id(other), "short")
    assert states(world)["long"] == "QUEUED"


def test_tasks_in_the_way_are_asked_and_then_preempted() -> None:
    world = a_world(1)
    made(world)
    other = submitter(world, timed("t"))
    wait(world, 49.9)
    assert not asked(world, other)
    wait(world, 0.1)
    [message] = asked(world, other)
    assert (message.task_ids, message.grace_s) == ((TaskId("t"),), GRACE_S)
    wait(world, 9.9)
    assert states(world) == {"t": "STAGING"}
    wait(world, 0.1)
    assert kills(world) == {"t": Reason.PREEMPTED}
    assert len(asked(world, other)) == 1


def test_a_task_with_a_checkpoint_signal_gets_it_when_it_is_asked() -> None:
    world = a_world(0)
    world.agent("cpus:4;mem:4GB", "h1", features="requeue")
    made(world)
    saves = replace(timed("t"), preemption=TaskPreemption(checkpoint_signal=10), grace_ms=2_000)
    other = submitter(world, saves)
    wait(world, 50)
    assert len(asked(world, other)) == 1
    [task] = [task for each in world.state.frameworks.values() for task in each.tasks.values()]
    assert task.kill is not None
    assert (task.kill.grace_ms, task.kill.reason) == (12_000, Reason.PREEMPTED)


def asked(world: SecuredWorld, session: SessionId) -> list[PreemptRequested]:
    return [each for each in world.sent.get(session, ()) if isinstance(each, PreemptRequested)]


def kills(world: SecuredWorld) -> dict[str, Reason]:
    return {
        task_id: task.kill.reason
        for framework in world.state.frameworks.values()
        for task_id, task in framework.tasks.items()
        if task.kill is not None
    }


@pytest.mark.parametrize("how", ["off", "in time", "own role", "below", "protected"])
def test_what_is_not_in_the_way_runs_on(how: str) -> None:
    settings = Settings() if how == "off" else PREEMPTING
    world = a_world(1, settings)
    made(world, replace(WANTED, notice_ms=0))
    role = {"own role": "r", "below": "r/x", "protected": "safe"}.get(how, "other")
    if how == "protected":
        world.state.allocator.set_role(Role("safe"), RoleSettings(preemption=False))
    session = submitter(world, timed("t", 60 if how == "in time" else 0), role=role)
    wait(world, 59.0)
    assert not asked(world, session)
    wait(world, 2.0)
    assert not kills(world)
    [reservation] = world.state.reservations.values()
    assert reservation.state is ReservationState.ACTIVE


def test_a_task_on_an_offer_for_shorter_ones_is_refused() -> None:
    world = a_world(1)
    made(world, replace(WANTED, notice_ms=60_000))
    demand = Demand(Resources.parse("cpus:4"), 1, max_completion_ms=45_000)
    other = world.framework("other", demands=(demand,))
    verdict = world.accept(other, timed("long", 61))
    assert "is reserved for another role in 60 s" in str(verdict.tasks[0].error)
    assert isinstance(verdict.tasks[0].error, Conflict)


def test_a_task_that_fits_into_a_hold_runs_on_a_reserved_agent() -> None:
    world = a_world(1)
    other = world.framework("other", "cpus:2")
    [offer] = world.offers(other)
    held = calls.MakeHold(HoldId("own"), Resources.parse("cpus:2"))
    world.call(other, calls.Accept((offer.offer_id,), (), 0.0, holds=(held,)))
    made(world, replace(WANTED, notice_ms=60_000))
    [offer] = world.offers(other)
    assert offer.hold_id == "own"
    task = make_task("t", "cpus:2")
    assert world.accept(other, task, offers=[offer.offer_id]).tasks[0].error is None
    assert states(world) == {"t": "STAGING"}


def test_agents_with_the_fewest_conflicts_are_chosen() -> None:
    world = a_world(4)
    submitter(world, timed("forever"), timed("brief", 20), timed("endless"))
    tasks = [task for f in world.state.frameworks.values() for task in f.tasks.values()]
    by_agent = {task.agent_id: task.task_id for task in tasks}
    assert len(by_agent) == 3
    chosen = [agent for agent, _ in made(world, replace(WANTED, agents=2)).agents]
    # The idle one, and then the one whose task ends before.
    assert [by_agent.get(agent) for agent in chosen] == [None, "brief"]


def test_it_is_refused_if_too_few_agents_are_left() -> None:
    world = a_world(3)
    made(world, replace(WANTED, agents=2))
    later = replace(WANTED, agents=3, times=Times(NOW_MS + 120_000, NOW_MS + 180_000))
    made(world, later)
    overlapping = replace(WANTED, agents=2, times=Times(NOW_MS + 100_000, NOW_MS + 110_000))
    refusal = world.refused(create(overlapping))
    assert isinstance(refusal, Conflict)
    assert "only 1 of 3 agents can be reserved then" in str(refusal)
    made(world, replace(overlapping, agents=1))


def test_agents_have_to_suit() -> None:
    world = a_world(3)
    world.agent("cpus:1;mem:1GB", "small", agent_id="small")
    second = replace(WANTED, constraints=(equals("number", "2"),))
    assert made(world, second).agents == (("a2", "h2"),)
    assert isinstance(world.refused(create(second)), Conflict)
    large = replace(WANTED, least=Resources.parse("cpus:4"), agents=3)
    assert "only 2 of 4" in str(world.refused(create(large)))


def test_a_lost_agent_is_replaced() -> None:
    world = a_world(2)
    first = made(world).agents[0][0]
    wait(world, 30)
    session = world.state.agents[first].session
    assert session is not None
    world.end_session(session)
    wait(world, 80)
    tell_time(world)
    [reservation] = world.state.reservations.values()
    assert reservation.agent_ids != (first,)
    assert len(reservation.agent_ids) == 1
    assert "agents" in changes(world)
    [other] = reservation.agent_ids
    assert world.state.allocator.reservations.of(other)
    assert not world.state.allocator.reservations.of(first)


def tell_time(world: SecuredWorld, drift_ms: int = 0) -> None:
    """Tell the core the time of day, as the driver does each minute."""
    world.do(AccountingDue(NOW_MS + round(1000 * world.now) + drift_ms))


def test_it_recurs() -> None:
    world = a_world(1)
    made(world, replace(WANTED, times=replace(WANTED.times, every_ms=DAY_MS)))
    wait(world, 130)
    assert state_of(world) == "waiting"
    [reservation] = world.state.reservations.values()
    assert reservation.times.from_ms == WANTED.times.from_ms + DAY_MS
    assert world.saved[-1] == reservation.record()
    assert not world.state.allocator.reservations.of(reservation.agent_ids[0])
    world.now += DAY_MS / 1000 - 70
    wait(world, 10)
    assert state_of(world) == "active"
    assert changes(world) == ["announced", "began", "over", "announced", "began"]


def test_the_next_master_goes_on_with_it() -> None:
    world = a_world(1)
    made(world)
    wait(world, 70)
    world.restart()
    assert state_of(world) == "waiting"
    tell_time(world)
    assert state_of(world) == "active"
    [reservation] = world.state.reservations.values()
    [kept] = world.state.allocator.reservations.of(reservation.agent_ids[0])
    assert (kept.starts_at, kept.until) == (60.0, 120.0)
    world.pass_time(60)
    world.restart()
    assert not world.state.reservations


def test_occurrences_that_no_master_saw_are_skipped() -> None:
    world = a_world(1)
    made(world, replace(WANTED, times=replace(WANTED.times, every_ms=DAY_MS)))
    world.now += 5.5 * DAY_MS / 1000
    world.restart()
    tell_time(world)
    [reservation] = world.state.reservations.values()
    assert reservation.times.from_ms == WANTED.times.from_ms + 6 * DAY_MS
    assert reservation.state is ReservationState.WAITING


def test_a_jump_of_the_clock_moves_it() -> None:
    world = a_world(1)
    made(world)
    wait(world, 40)
    tell_time(world, drift_ms=15_000)
    [reservation] = world.state.reservations.values()
    [kept] = world.state.allocator.reservations.of(reservation.agent_ids[0])
    assert (kept.starts_at, kept.until) == (45.0, 105.0)
    wait(world, 5)
    assert reservation.state is ReservationState.ACTIVE
    # It does not go back.
    tell_time(world, drift_ms=-15_000)
    assert reservation.state is ReservationState.ACTIVE


def test_it_is_deleted() -> None:
    world = a_world(1)
    named = replace(WANTED, reservation_id=ReservationId("R"))
    made(world, named)
    assert "there is a reservation R already" in str(world.refused(create(named)))
    wait(world, 31)
    ended = world.ask(DeleteReservation(1, ReservationId("R"), "operator:1"))
    assert isinstance(ended, ReservationStatus)
    assert ended.reservation.state is ReservationState.ANNOUNCED
    assert not world.state.reservations
    assert world.offers(world.framework("other"))
    assert isinstance(world.refused(DeleteReservation(1, ReservationId("R"))), NotFound)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (replace(WANTED, agents=0), "number of agents"),
        (replace(WANTED, times=Times(NOW_MS + 10, NOW_MS + 10)), "after the begin"),
        (replace(WANTED, times=Times(NOW_MS - 20, NOW_MS - 10)), "later than now"),
        (replace(WANTED, times=Times(NOW_MS, NOW_MS + 20, 5)), "every day or every week"),
        (replace(WANTED, times=Times(NOW_MS, NOW_MS + 2 * DAY_MS, DAY_MS)), "before it begins"),
        (replace(WANTED, notice_ms=31 * DAY_MS), "notice"),
        (replace(WANTED, least=Resources.parse("ports:[1-2]")), "scalars"),
        (replace(WANTED, role=Role("/")), "role"),
        (replace(WANTED, reservation_id=ReservationId("a/b")), "reservation id"),
    ],
)
def test_malformed_reservations_are_refused(wrong: NewReservation, error: str) -> None:
    refusal = a_world().refused(create(wrong))
    assert isinstance(refusal, InvalidRequest)
    assert error in str(refusal)


def test_who_may_reserve_and_of_which_agents() -> None:
    world = SecuredWorld(
        "op client/op change-roles role:r",
        "op-agents client/op operate-agents agent:a2",
        "view client/viewer view role:r",
    )
    for agent_id in ("a1", "a2"):
        world.secured_agent(agent_id)
    assert "change-roles" in str(world.refused(create(name="viewer")))
    status = world.ask(create(name="op"))
    assert isinstance(status, ReservationStatus)
    assert [agent for agent, _ in status.agents] == ["a2"]
    assert isinstance(world.refused(create(name="op")), Conflict)
    for name, error in (("viewer", "may not"), ("nobody", "no reservation")):
        delete = DeleteReservation(1, status.reservation.reservation_id, "", caller(name))
        refusal = world.refused(delete)
        assert isinstance(refusal, CroupierError)
        assert error in str(refusal)
    assert isinstance(
        world.ask(DeleteReservation(1, status.reservation.reservation_id, "", caller("op"))),
        ReservationStatus,
    )


def test_overlaps_of_times_against_all_occurrences() -> None:
    random = Random("times")
    periods = (0, 0, 24, 7 * 24)

    def occurrences(times: Times) -> list[tuple[int, int]]:
        number = 1 if not times.every_ms else 100
        steps = [times.every_ms * n for n in range(number)]
        return [(times.from_ms + step, times.until_ms + step) for step in steps]

    found = set()
    for _ in range(3000):
        made_times = []
        for _ in range(2):
            every, begin = random.choice(periods), random.randint(0, 400)
            length = random.randint(1, every or 60)
            made_times.append(Times(begin, begin + length, every))
        one, other = made_times
        expected = any(a < d and c < b for a, b in occurrences(one) for c, d in occurrences(other))
        assert one.overlaps(other) == other.overlaps(one) == expected, made_times
        found.add((expected, bool(one.every_ms), bool(other.every_ms)))
    assert len(found) == 8
