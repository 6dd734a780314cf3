"""Gangs from the wire, and how they are placed; `scenarios/gangs.txt` tells the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from croupier.master.allocator import Allocator, Cause
from croupier.master.allocator.agent_allocation import AgentAllocation
from croupier.master.allocator.gangs import GangSearch
from croupier.master.allocator.gatherer import WAIT_S
from croupier.master.allocator.grant import GangPlace, Grant
from croupier.master.allocator.node import Leaf
from croupier.master.allocator.pending_demand import PendingDemand, Shape, gang_shape
from croupier.master.core import calls
from croupier.master.core.effects import SessionId
from croupier.master.core.events import AgentTask
from croupier.model.agent_orders import KillTask, LaunchTask
from croupier.model.demand import ANYWHERE
from croupier.model.errors import InvalidRequest
from croupier.model.gang import ANY_AGENTS, GangMember, GangPlacement, check_gang
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.isolation import Isolation
from croupier.model.resources import Resources, total_of
from croupier.model.task import Command, TaskInfo, TaskState, TaskStatus
from croupier.model.task_checks import check_task
from croupier.model.task_group import GroupPart, TaskGroup
from croupier.model.volume import VolumeMount
from croupier.v1 import framework_pb2
from croupier.wire.task import task_from_wire, task_to_wire
from tests.harness.off_the_wire import call_from_wire
from tests.harness.reasons import reasons_of
from tests.harness.world import World, in_gang, make_task

F = FrameworkId("F")


def submitted(tasks: Sequence[TaskInfo], *, is_gang: bool = True) -> calls.Submit:
    submit = framework_pb2.Submit(tasks=map(task_to_wire, tasks), gang=is_gang)
    call = call_from_wire(SessionId(1), framework_pb2.Call(seq=1, submit=submit)).call
    assert isinstance(call, calls.Submit)
    return call


def test_a_gang_comes_from_the_wire_as_it_was() -> None:
    placement = GangPlacement("rack", "host")
    gang = in_gang("g", make_task("a"), make_task("b"), parts=["leader"], placement=placement)
    placed = [
        replace(task, gang=replace(task.gang, hosts=("h1", "h2"), port=31_000))
        for task in gang
        if task.gang is not None
    ]
    assert [task_from_wire(task_to_wire(task)) for task in placed] == placed
    assert submitted(gang).tasks == gang


@pytest.mark.parametrize(
    ("tasks", "is_gang", "why"),
    [
        (in_gang("g", make_task("a")), False, "submit it with `gang` set"),
        ((*in_gang("g", make_task("a")), *in_gang("h", make_task("b"))), True, "not name gang 'g'"),
        ((*in_gang("g", make_task("a")), make_task("b")), True, "not name gang 'g'"),
    ],
)
def test_a_task_that_is_not_of_the_gang_of_its_call_is_malformed(
    tasks: Sequence[TaskInfo], is_gang: bool, why: str
) -> None:
    (malformed,) = submitted(tasks, is_gang=is_gang).malformed
    assert why in malformed.message


def test_a_call_without_a_gang_that_should_be_one_is_refused() -> None:
    submit = framework_pb2.Submit(tasks=[task_to_wire(make_task("a"))], gang=True)
    call = call_from_wire(SessionId(1), framework_pb2.Call(seq=1, submit=submit)).call
    assert isinstance(call, calls.Malformed)
    assert "must name it" in str(call.error)


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ([GangMember("g", 1, 1)], "place 0 has rank 1"),
        ([GangMember("g", 0, 2), GangMember("g", 0, 2)], "place 1 has rank 0"),
        ([GangMember("g", 0, 3), GangMember("g", 1, 3)], "has 2 tasks"),
        ([GangMember("g", 0, 2), None], "does not name gang g"),
        ([GangMember("g", 0, 1, hosts=("h",))], "the master itself says"),
        ([GangMember("g", 0, 1, GroupPart.SIDECAR)], "sidecars only"),
        ([GangMember("g", n, 2, GroupPart.LEADER) for n in range(2)], "more than one leader"),
        (
            [GangMember("g", 0, 2), GangMember("g", 1, 2, placement=GangPlacement(pack=True))],
            "different placements",
        ),
    ],
)
def test_what_is_no_gang(members: Sequence[GangMember | None], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        check_gang(members)


@pytest.mark.parametrize(
    "placement",
    [
        GangPlacement(same="rack", spread="rack"),
        GangPlacement(same="host", spread="rack"),
        GangPlacement(spread="rack", pack=True),
        GangPlacement(same="r" * 256),
    ],
)
def test_placements_that_cannot_be(placement: GangPlacement) -> None:
    with pytest.raises(InvalidRequest):
        placement.check()


@pytest.mark.parametrize(
    "task",
    [
        replace(make_task("a"), group=TaskGroup("x")),
        replace(make_task("a"), volumes=(VolumeMount("v", "v"),)),
        replace(make_task("a"), executor_id=TaskId("e"), command=Command()),
        replace(make_task("a"), isolation=Isolation(no_network=True)),
    ],
)
def test_what_a_member_cannot_be(task: TaskInfo) -> None:
    with pytest.raises(InvalidRequest, match="gang"):
        check_task(*in_gang("g", task))


def test_members_know_each_other() -> None:
    member = GangMember("g", 2, 3, hosts=("h1", "h2", "h1"), port=31_005)
    found = member.variables()
    assert found["CROUPIER_GANG_HOSTS"] == "h1,h2,h1"
    assert (found["RANK"], found["WORLD_SIZE"], found["CROUPIER_NODE_RANK"]) == ("2", "3", "0")
    assert (found["LOCAL_RANK"], found["LOCAL_WORLD_SIZE"]) == ("1", "2")
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("h1", "31005")
    assert member.hostfile() == "h1 slots=2\nh2 slots=1\n"
    assert replace(member, port=0).variables()["MASTER_PORT"] == "29500"


def test_the_first_port_of_rank_0_is_where_they_meet() -> None:
    world = World()
    agents = [
        world.agent("cpus:1;mem:1GB;ports:[31000-31009]", hostname=name, features="gangs")
        for name in ("h1", "h2")
    ]
    session = world.framework(suppressed=True)
    first, second = make_task("a", "cpus:1;mem:32MB;ports:2"), make_task("b", "cpus:1;mem:32MB")
    world.call(session, calls.Submit(in_gang("g", first, second)))
    orders = [
        message
        for agent in agents
        for message in world.sent[agent]
        if isinstance(message, LaunchTask)
    ]
    gangs = [order.task.gang for order in orders]
    assert [gang.rank for gang in gangs if gang is not None] == [0, 1]
    for gang in gangs:
        assert gang is not None
        assert (gang.hosts, gang.port) == (("h1", "h2"), 31_000)


def test_members_on_several_agents_may_have_the_same_ports() -> None:
    world = World()
    for name in ("h1", "h2"):
        world.agent("cpus:1;mem:1GB;ports:[31000-31009]", hostname=name, features="gangs")
    session = world.framework(suppressed=True)
    members = [make_task(each, "cpus:1;mem:32MB;ports:2") for each in "ab"]
    world.call(session, calls.Submit(in_gang("g", *members)))
    (framework,) = world.state.frameworks.values()
    placed = [str(task.info.resources) for task in framework.tasks.values()]
    assert placed == ["cpus:1;mem:32MB;ports:[31000-31001]"] * 2


class Dealer:
    """An allocator with one framework that has a gang."""

    def __init__(self, *agents: str) -> None:
        self.allocator = Allocator()
        for number, total in enumerate(agents):
            self.allocator.add_agent(AgentId(f"a{number}"), Resources.parse(total))
        self.allocator.add_framework(F, [Role("*")])
        self.allocator.connect(F, True)
        self.allocator.suppress(F)

    def queue(self, *members: str, placement: GangPlacement = ANY_AGENTS, number: int = 1) -> None:
        units = [Resources.parse(each) for each in members]
        gang = gang_shape(units, placement)
        shape = Shape(total_of(units), ANYWHERE, gang=gang)
        self.allocator.queue(F, Role("*"), shape, number)

    def places(self) -> list[list[str]]:
        """Return the agents of each gang that is dealt now, by rank."""
        grants: list[Grant] = []
        while self.allocator.has_dirty_agents:
            grants += self.allocator.run(0.0)
        return [[place.agent_id for place in grant.places] for grant in grants]


def test_the_largest_members_are_placed_first() -> None:
    dealer = Dealer("cpus:3;mem:8GB", "cpus:4;mem:8GB")
    dealer.queue(*["cpus:1;mem:1GB"] * 3, "cpus:4;mem:1GB")
    assert dealer.places() == [["a0", "a0", "a0", "a1"]]


def test_the_only_agent_with_ports_is_left_to_the_member_that_needs_them() -> None:
    dealer = Dealer("cpus:2;mem:8GB;ports:[31000-31009]", "cpus:2;mem:8GB")
    dealer.queue("cpus:1;mem:1GB;ports:1", "cpus:1;mem:2GB", "cpus:2;mem:2GB")
    assert dealer.places() == [["a0", "a0", "a1"]]


def test_a_member_for_which_one_agent_is_large_enough_goes_before_one_that_needs_ports() -> None:
    dealer = Dealer(*(f"cpus:{cpus};mem:8GB;ports:[31000-31009]" for cpus in (4, 1)))
    dealer.queue("cpus:1;mem:1GB;ports:1", "cpus:4;mem:1GB")
    assert dealer.places() == [["a1", "a0"]]


def test_a_rack_is_left_to_the_member_that_needs_what_one_of_its_agents_has() -> None:
    dealer = Dealer()
    for number, rack in enumerate(["r1", "r1", "r2"]):
        total = Resources.parse("cpus:2;mem:8GB" + (";ports:[31000-31009]" if number == 1 else ""))
        dealer.allocator.add_agent(AgentId(f"a{number}"), total, "h", {"rack": rack})
    placement = GangPlacement(spread="rack")
    dealer.queue("cpus:1;mem:1GB;ports:1", "cpus:2;mem:1GB", placement=placement)
    assert dealer.places() == [["a1", "a2"]]


def test_of_several_racks_the_first_with_room_is_taken() -> None:
    dealer = Dealer()
    for number, rack in enumerate(["r1", "r2", "r1", "r2"]):
        total = Resources.parse(f"cpus:{1 + number};mem:8GB")
        dealer.allocator.add_agent(AgentId(f"a{number}"), total, "h", {"rack": rack})
    dealer.queue(*["cpus:1;mem:1GB"] * 5, placement=GangPlacement(same="rack"))
    assert dealer.places() == [["a1", "a1", "a3", "a3", "a3"]]


def test_a_gang_that_did_not_fit_is_tried_again_once_there_is_room() -> None:
    dealer = Dealer("cpus:2;mem:8GB")
    dealer.queue(*["cpus:1;mem:1GB"] * 3)
    assert dealer.places() == []
    dealer.allocator.add_agent(AgentId("b"), Resources.parse("cpus:1;mem:8GB"))
    assert dealer.places() == [["b", "a0", "a0"]]


def test_equal_gangs_are_dealt_one_after_the_other() -> None:
    dealer = Dealer(*["cpus:2;mem:8GB"] * 4)
    dealer.queue(*["cpus:1;mem:1GB"] * 3, number=3)
    assert [len(places) for places in dealer.places()] == [3, 3]


def test_max_per_agent_counts_members_of_gangs_that_are_dealt_together() -> None:
    dealer = Dealer("cpus:8;mem:8GB", "cpus:8;mem:8GB")
    gang = gang_shape([Resources.parse("cpus:1;mem:1GB")] * 2, ANY_AGENTS)
    shape = Shape(Resources.parse("cpus:2;mem:2GB"), replace(ANYWHERE, max_per_agent=2), gang=gang)
    dealer.allocator.queue(F, Role("*"), shape, 3)
    assert dealer.places() == [["a0", "a0"], ["a1", "a1"]]


def test_a_gang_that_cannot_be_launched_leaves_nothing_behind() -> None:
    dealer = Dealer("cpus:2;mem:8GB", "cpus:2;mem:8GB")
    dealer.queue(*["cpus:1;mem:1GB"] * 3)
    (grant,) = dealer.allocator.run(0.0)
    dealer.allocator.withdraw_gang(grant)
    assert dealer.allocator.queries.held() == (Resources({}), Resources({}))
    assert dealer.places() == []


def test_a_costly_search_in_vain_is_not_repeated_with_each_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searches: list[float] = []
    best = GangSearch.best

    def counted(self: GangSearch, leaf: Leaf, pending: PendingDemand) -> list[GangPlace | None]:
        searches.append(now)
        return best(self, leaf, pending)

    monkeypatch.setattr(GangSearch, "best", counted)
    now = 0.0
    dealer = Dealer(*["cpus:2;mem:8GB"] * 200)
    dealer.queue(*["cpus:1;mem:1GB"] * 3, placement=GangPlacement(same="host"))
    assert dealer.places() == []
    for number in range(50):
        dealer.allocator.add_agent(AgentId(f"b{number}"), Resources.parse("cpus:2;mem:8GB"))
        assert dealer.places() == []
    assert len(searches) == 1
    # Nothing but the time makes it look again for the room that there is by then.
    dealer.allocator.add_agent(AgentId("c"), Resources.parse("cpus:3;mem:8GB"))
    assert dealer.places() == []
    wakes_at = dealer.allocator.next_wakeup()
    assert wakes_at is not None
    now = wakes_at
    dealer.allocator.wake(now)
    (grant,) = dealer.allocator.run(now)
    assert {place.agent_id for place in grant.places} == {"c"}
    assert searches == [0.0, now]


def test_a_gang_without_room_costs_no_visit_of_every_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    visits: list[object] = []
    run = AgentAllocation.run

    def counted(self: AgentAllocation, leaves: Iterable[Leaf] | None = None) -> list[Grant]:
        visits.append(self)
        return run(self, leaves)

    monkeypatch.setattr(AgentAllocation, "run", counted)
    dealer = Dealer(*["cpus:2;mem:8GB"] * 200)
    assert dealer.places() == []
    for number in range(10):
        dealer.queue(*["cpus:1;mem:1GB"] * (3 + number), placement=GangPlacement(same="host"))
        assert dealer.places() == []
    assert len(visits) < 20
    # The pause ends, though the agent from which it was looked for is not free any more.
    dealer.allocator.add_agent(AgentId("c"), Resources.parse("cpus:3;mem:8GB"))
    assert dealer.places() == []
    dealer.allocator.activate_agent(AgentId("c"), False)
    dealer.allocator.activate_agent(AgentId("a0"), False)
    dealer.allocator.add_agent(AgentId("d"), Resources.parse("cpus:3;mem:8GB"))
    wakes_at = dealer.allocator.next_wakeup()
    assert wakes_at is not None
    dealer.allocator.wake(wakes_at)
    (grant,) = dealer.allocator.run(wakes_at)
    assert [place.agent_id for place in grant.places] == ["d", "d", "d"]


def test_a_task_of_an_earlier_gang_is_no_member_of_a_later_one_with_its_id() -> None:
    world = World()
    session = world.framework(suppressed=True)
    framework_id = world.framework_id(session)
    world.call(session, calls.Submit(in_gang("g", make_task("a"), make_task("b"))))
    found, _ = in_gang("g", make_task("x"), make_task("y"))
    status = TaskStatus(framework_id, TaskId("x"), AgentId("a1"), TaskState.RUNNING, sequence=1)
    listed = AgentTask(framework_id, found, status, (status,), Role("*"))
    total = "cpus:1;mem:1GB"
    agent = world.agent(total, features="gangs", agent_id="a1", tasks=(listed,))
    ended = [message for message in world.sent[agent] if isinstance(message, KillTask)]
    assert [each.task_id for each in ended] == ["x"]
    world.check_recovery()
    world.report(agent, framework_id, "x", TaskState.KILLED, 2)
    tasks = world.state.frameworks[framework_id].tasks.values()
    assert [task.state for task in tasks] == [TaskState.QUEUED] * 2


def test_no_pause_holds_up_a_gang_whose_gathered_room_is_complete() -> None:
    dealer = Dealer(*["cpus:1;mem:8GB"] * 100, "cpus:2;mem:8GB")
    allocator = dealer.allocator
    small = Shape(Resources.parse("cpus:1;mem:1GB"), ANYWHERE)
    allocator.queue(F, Role("*"), small, 102)
    running: list[tuple[AgentId, Resources]] = []
    for grant in allocator.run(0.0):
        (units,) = grant.units
        for _ in range(units[1]):
            allocator.charges.launch(F, Role("*"), grant.agent_id, small.unit)
            running.append((grant.agent_id, small.unit))
        allocator.launched(grant)
    assert len(running) == 102
    dealer.queue(*["cpus:1;mem:1GB"] * 2, placement=GangPlacement(same="host"))
    allocator.gather(1.0)
    allocator.gather(1.0 + WAIT_S)
    now, placed = 2.0 + WAIT_S, []
    # Many agents have room for a member before the last one has room for both.
    for agent_id, amount in running:
        allocator.charges.release(F, Role("*"), agent_id, amount)
        while allocator.has_dirty_agents:
            placed += allocator.run(now)
    (grant,) = placed
    assert {place.agent_id for place in grant.places} == {"a100"}


@pytest.mark.parametrize(
    ("placement", "size", "why"),
    [
        (GangPlacement(same="zone"), 2, "no agent has the attribute zone"),
        (GangPlacement(spread="zone"), 2, "no agent has the attribute zone"),
        (GangPlacement(spread="host"), 9, "at most 4 of its tasks fit on different agents"),
        (GangPlacement(spread="rack"), 3, "at most 2 of its tasks fit with another rack for each"),
        (GangPlacement(same="host"), 3, "at most 2 of its tasks fit on one agent"),
        (GangPlacement(same="rack"), 5, "at most 4 of its tasks fit on agents with the same rack"),
        (ANY_AGENTS, 9, "at most 8 of its tasks fit on all agents"),
        (GangPlacement(spread="host"), 4, ""),
        (GangPlacement(same="rack"), 4, ""),
        (ANY_AGENTS, 8, ""),
    ],
)
def test_a_gang_that_never_fits_is_told_so(placement: GangPlacement, size: int, why: str) -> None:
    dealer = Dealer()
    for number in range(4):
        total = Resources.parse("cpus:2;mem:8GB;ports:[1-2]")
        rack = {"rack": f"r{number % 2}"}
        dealer.allocator.add_agent(AgentId(f"a{number}"), total, "h", rack)
    # All is in use.
    full = Shape(Resources.parse("cpus:2;mem:1GB"), ANYWHERE)
    dealer.allocator.queue(F, Role("*"), full, 4)
    dealer.places()
    members = ["cpus:1;mem:1GB;ports:1", *["cpus:1;mem:1GB"] * (size - 1)]
    dealer.queue(*members, placement=placement)
    assert dealer.places() == []
    reasons = reasons_of(dealer.allocator.queries, F)
    (told,) = [each.detail for each in reasons if each.cause is Cause.GANG]
    never = f"no set of agents has room for it, even if all were free: {why}"
    assert told.endswith(never if why else ": 0 of them fit now")
