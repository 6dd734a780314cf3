"""Holds that operators make and release; `scenarios/holds.txt` tells those of frameworks."""

from __future__ import annotations

import pytest

from croupier.master.core import calls
from croupier.master.core.agent_status import agent_status
from croupier.master.core.agents import AgentState
from croupier.master.core.events import AgentStopped
from croupier.master.core.hold_charges import cluster_use
from croupier.master.core.hold_commands import CreateHold, HoldStatus, ReleaseHold, held_by_role
from croupier.master.core.messages import Offered
from croupier.master.services.views import view_framework, view_master, view_task
from croupier.model.errors import Conflict, CroupierError, InvalidRequest, NotFound
from croupier.model.ids import AgentId, HoldId, OfferId, Role
from croupier.model.resources import NOTHING, Resources
from croupier.model.roles import RoleSettings
from croupier.wire.resources import resources_from_wire
from tests.harness.invariants import check_state
from tests.harness.secured_world import SecuredWorld, caller
from tests.harness.world import make_task

TWO = Resources.parse("cpus:2;mem:2GB")


def a_world(*rules: str, is_on: bool = False) -> SecuredWorld:
    return SecuredWorld(*rules, is_on=is_on)


def create(
    amount: Resources = TWO, role: str = "r", agent: str = "h", hold_id: str = "", ttl_ms: int = 0
) -> CreateHold:
    wanted = calls.MakeHold(HoldId(hold_id), amount, ttl_ms)
    return CreateHold(1, agent, Role(role), wanted, "operator:1")


def made(world: SecuredWorld, command: CreateHold) -> HoldStatus:
    answer = world.ask(command)
    assert isinstance(answer, HoldStatus), answer
    check_state(world.state)
    return answer


def test_what_is_held_of_an_agent_and_idle_is_not_free() -> None:
    world = a_world()
    world.agent("cpus:4;mem:4GB", "h")
    made(world, create())
    [agent] = world.state.agents.values()

    def parts() -> list[Resources]:
        status = agent_status(world.state, agent, world.now)
        return [status.used, status.offered, status.held]

    assert parts() == [NOTHING, NOTHING, TWO]
    # An offer of it is no longer idle, nor is what a task uses; the rest of the agent is free.
    owner = world.framework("r")
    used, offered, held = parts()
    assert (used, held) == (NOTHING, NOTHING)
    assert offered == Resources.parse("cpus:4;mem:4GB")
    [offer] = [each for each in agent.offers.values() if each.hold_id]
    world.accept(owner, make_task("t", "cpus:1;mem:1GB"), offers=[offer.offer_id])
    used, offered, held = parts()
    assert used == Resources.parse("cpus:1;mem:1GB")
    assert used + offered + held <= agent.total
    check_state(world.state)


def test_all_parts_of_the_cluster_add_up_with_holds() -> None:
    world = a_world()
    agent_id = world.agent_id(world.agent("cpus:4;mem:4GB", "h"))

    def parts() -> list[int]:
        """Return the cpus that are used, offered, and held, as all totals tell them."""
        use = [each["cpus"] for each in cluster_use(world.state)]
        view = view_master(world.state, world.now)
        [agent] = world.state.agents.values()
        if agent.in_pool:
            status = agent_status(world.state, agent, world.now)
            wires = (view.used, view.offered, view.held)
            assert [resources_from_wire(each)["cpus"] for each in wires] == use
            assert [each["cpus"] for each in (status.used, status.offered, status.held)] == use
        return use

    made(world, create())
    assert parts() == [0, 0, 2000]
    owner = world.framework("r")
    assert parts() == [0, 4000, 0]
    [offer] = [each for each in world.state.offers.values() if each.hold_id]
    world.accept(owner, make_task("t", "cpus:1;mem:1GB"), offers=[offer.offer_id])
    used, offered, held = parts()
    assert (used, offered + held) == (1000, 3000)
    world.restart()
    assert parts() == [1000, 0, 1000]
    world.agent("cpus:4;mem:4GB", "h", agent_id=agent_id)
    assert parts() == [1000, 0, 1000]


def test_an_operator_holds_resources_for_a_role_without_frameworks() -> None:
    world = a_world()
    world.agent("cpus:4;mem:4GB", "h")
    hold = made(world, create(role="r/x"))
    assert (hold.framework_id, hold.role, hold.unused) == ("", "r/x", TWO)
    assert hold.hold_id.endswith("-H1")
    queries = world.state.allocator.queries
    assert queries.used_by_role()[Role("r")] == TWO.scalars
    # A framework beside that role does not get them; one in it does.
    beside = world.framework("s")
    assert [offer.resources for offer in world.offers(beside)] == [TWO]
    within = world.framework("r/x")
    [offer] = [m for m in world.sent[within] if isinstance(m, Offered)]
    assert (offer.hold_id, offer.resources) == (hold.hold_id, TWO)
    world.accept(within, make_task("t", "cpus:1;mem:1GB"), offers=[offer.offer_id])
    held, unused = held_by_role(world.state)[Role("r/x")]
    assert (held["cpus"], unused["cpus"]) == (2000, 1000)
    ended = world.ask(ReleaseHold(1, hold.hold_id))
    assert isinstance(ended, HoldStatus)
    assert ended.tasks == 1
    check_state(world.state)
    # The task runs on; its framework is charged for it alone.
    assert queries.used_by_role()[Role("r")]["cpus"] == 1000
    assert isinstance(world.refused(ReleaseHold(1, hold.hold_id)), NotFound)


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (create(Resources.parse("cpus:9")), Conflict),
        (create(Resources()), InvalidRequest),
        (create(agent="nowhere"), NotFound),
        (create(role="a//b"), InvalidRequest),
        (create(hold_id=".."), InvalidRequest),
        (create(ttl_ms=10**15), InvalidRequest),
        (create(role="limited"), Conflict),
    ],
)
def test_a_hold_that_cannot_be_made_is_refused(
    command: CreateHold, error: type[CroupierError]
) -> None:
    world = a_world()
    world.agent("cpus:4;mem:4GB", "h")
    world.state.allocator.set_role(Role("limited"), RoleSettings(limit={"cpus": 1000}))
    assert isinstance(world.refused(command), error)
    check_state(world.state)


def test_holds_of_a_role_count_in_its_limit() -> None:
    world = a_world()
    world.agent("cpus:8;mem:8GB", "h")
    world.state.allocator.set_role(Role("r"), RoleSettings(limit={"cpus": 3000}))
    made(world, create(role="r/x"))
    assert "limit" in str(world.refused(create(role="r")))
    framework = world.framework("r/y")
    assert [offer.resources["cpus"] for offer in world.offers(framework)] == [1000]


def test_no_hold_is_made_of_an_agent_that_is_away() -> None:
    world = a_world()
    session = world.agent("cpus:4;mem:4GB", "h")
    agent_id = world.agent_id(session)
    world.end_session(session)
    world.pass_time(1000.0)
    assert world.state.agents[agent_id].state is AgentState.UNREACHABLE
    assert isinstance(world.refused(create()), Conflict)


def test_who_may_make_and_release_holds() -> None:
    world = a_world(
        "op client/op operate-agents agent:*",
        "op-roles client/op change-roles role:r",
        "half client/half operate-agents agent:*",
        "owner client/owner register role:r",
        "watch client/viewer view role:r",
        is_on=True,
    )
    world.secured_agent("a1")
    command = create(agent="a1")
    for name, error in (("half", "change-roles"), ("owner", "no agent"), ("viewer", "no agent")):
        refusal = world.refused(CreateHold(1, "a1", Role("r"), command.wanted, "", caller(name)))
        assert error in str(refusal), name
    hold = world.ask(CreateHold(1, "a1", Role("r"), command.wanted, "", caller("op")))
    assert isinstance(hold, HoldStatus)
    # The owner of a framework releases its holds. To others there are none, unless they may view
    # the role.
    world.as_principal("owner")
    framework = world.framework("r")
    own = calls.MakeHold(HoldId("own"), Resources.parse("cpus:1"))
    offers = tuple(OfferId(o.offer_id) for o in world.offers(framework) if not o.hold_id)
    world.call(framework, calls.Accept(offers, (), holds=(own,)))
    assert HoldId("own") in world.state.holds
    for name, word in (("viewer", "may not"), ("nobody", "no hold"), ("owner", "no hold")):
        assert word in str(world.refused(ReleaseHold(1, hold.hold_id, caller=caller(name)))), name
    assert "no hold" in str(world.refused(ReleaseHold(1, HoldId("own"), caller=caller("nobody"))))
    assert isinstance(world.ask(ReleaseHold(1, HoldId("own"), caller=caller("owner"))), HoldStatus)
    assert isinstance(world.ask(ReleaseHold(1, hold.hold_id, caller=caller("op"))), HoldStatus)
    check_state(world.state)


def test_a_hold_of_a_month_ends_though_a_master_leads_for_a_day_each() -> None:
    world = a_world()
    agent_id = world.agent_id(world.agent("cpus:4;mem:4GB", "h"))
    day_s = 24 * 3600
    made(world, create(ttl_ms=30 * day_s * 1000))
    terms = 0
    while world.state.holds and terms < 40:
        world.pass_time(day_s)
        world.restart()
        world.agent("cpus:4;mem:4GB", "h", agent_id=agent_id)
        terms += 1
    # A term adds at most an hour.
    assert 30 <= terms <= 32


def test_a_task_of_a_lost_agent_is_in_no_hold() -> None:
    world = a_world()
    session = world.agent("cpus:4;mem:4GB", "h")
    framework = world.framework("r")
    [offer] = world.offers(framework)
    held = (calls.MakeHold(HoldId("own"), TWO),)
    task = make_task("t", "cpus:1;mem:1GB")
    world.call(framework, calls.Accept((OfferId(offer.offer_id),), (task,), holds=held))
    [known] = world.state.frameworks[world.framework_id(framework)].tasks.values()
    assert view_task(world.state.snapshot(known)).hold_id == "own"
    owner = world.state.frameworks[world.framework_id(framework)]
    view = view_framework(world.state, owner, world.now)
    assert resources_from_wire(view.used) == resources_from_wire(view.held) == task.resources
    world.do(AgentStopped(session, "bye"))
    assert not world.state.holds
    # Until its end is acknowledged, the store has it, and another hold may get that id.
    assert [entry.hold_id for entry in world.ledger.values()] == [""]
    world.restart()


def test_a_hold_of_ports_only_is_kept() -> None:
    world = a_world()
    world.agent("cpus:4;mem:4GB;ports:[1-9]", "h")
    ports = Resources.parse("ports:[1-3]")
    hold = made(world, create(ports))
    framework = world.framework("r")
    offers = world.offers(framework)
    assert {str(o.resources) for o in offers if o.hold_id} == {"ports:[1-3]"}
    task = make_task("t", "cpus:1;ports:[2-2]")
    world.accept(framework, task, offers=[o.offer_id for o in offers])
    check_state(world.state)
    assert world.state.frameworks[world.framework_id(framework)].tasks[task.task_id].held
    world.ask(ReleaseHold(1, hold.hold_id))
    check_state(world.state)


def test_an_id_that_is_no_agent_s_names_no_hold() -> None:
    # The allocator's name of a hold has a slash, which no id may have.
    world = a_world()
    world.agent("cpus:4;mem:4GB", "h", agent_id=AgentId("a"))
    hold = made(world, create(agent="a", hold_id="b"))
    assert world.state.places.keys() == {f"a/{hold.hold_id}"}
    world.agent("cpus:4;mem:4GB", "other", agent_id=AgentId("a/b"))
    assert list(world.state.agents) == ["a"]
