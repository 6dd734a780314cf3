"""The parts of a framework's state that every SUBSCRIBE repeats."""

from __future__ import annotations

import asyncio

import pytest

from croupier.model.attributes import equals
from croupier.model.demand import Demand
from croupier.model.errors import InvalidRequest
from croupier.model.ids import DEFAULT_ROLE, Role
from croupier.model.resources import Resources
from croupier.net.address import Address
from croupier.net.outbox import Outbox
from croupier.sdk import Framework
from croupier.sdk.core.subscription import AcceptedTasks, Demands, Subscription, counted_down
from croupier.sdk.dispatch import HandlerCall, Inbox
from croupier.v1 import framework_pb2 as pb
from tests.harness.world import World, make_task
from tests.unit.sdk.test_offer_book import offer

UNIT = Resources.parse("cpus:1")
LARGE = Resources.parse("cpus:4;ports:2")
ADS, WEB = Role("ads"), Role("web")


def wanted(count: int | None) -> Demands:
    return (Demand(UNIT, count),)


def launched(subscription: Subscription, seq: int, tasks: int, *, is_resent: bool) -> bool:
    return subscription.on_launched(seq, AcceptedTasks(DEFAULT_ROLE, (UNIT,) * tasks), is_resent)


def left(demands: Demands, role: Role, *tasks: Resources, **facts: str) -> list[int | None]:
    """Return the counts after `tasks` were launched on an agent with these attributes."""
    return [each.count for each in counted_down(demands, ADS, AcceptedTasks(role, tasks, facts))]


class TestDemands:
    def test_demands_count_from_the_moment_they_are_sent(self) -> None:
        subscription = Subscription("", wanted(1))
        subscription.on_demands_sent(1, wanted(2))
        assert subscription.demands == wanted(2)
        subscription.on_demands_answered(1, True)
        assert subscription.demands == wanted(2)
        subscription.check()

    def test_refused_demands_give_way_to_the_earlier_ones(self) -> None:
        subscription = Subscription("", wanted(1))
        subscription.on_demands_sent(1, wanted(2))
        subscription.on_demands_sent(2, wanted(3))
        subscription.on_demands_answered(1, False)
        assert subscription.demands == wanted(3)
        subscription.on_demands_answered(2, False)
        assert subscription.demands == wanted(1)
        subscription.check()

    def test_launched_tasks_count_down_the_demand(self) -> None:
        subscription = Subscription("", wanted(5))
        assert not launched(subscription, 1, 2, is_resent=False)
        assert subscription.demands == wanted(3)
        launched(subscription, 2, 9, is_resent=False)
        assert subscription.demands == wanted(0)

    def test_tasks_launched_before_a_demand_do_not_count_it_down(self) -> None:
        subscription = Subscription("", wanted(5))
        subscription.on_demands_sent(2, wanted(7))
        subscription.on_demands_answered(2, True)
        launched(subscription, 1, 3, is_resent=False)
        assert subscription.demands == wanted(7)

    def test_an_unlimited_demand_is_not_counted_down(self) -> None:
        subscription = Subscription("", wanted(None))
        assert not launched(subscription, 1, 2, is_resent=True)
        assert subscription.demands == wanted(None)

    def test_tasks_of_an_earlier_stream_make_the_sdk_send_the_demand_again(self) -> None:
        subscription = Subscription("", wanted(5))
        assert launched(subscription, 1, 2, is_resent=True)
        assert not launched(subscription, 2, 0, is_resent=True)

    def test_newer_demands_under_way_make_that_unnecessary(self) -> None:
        subscription = Subscription("", wanted(5))
        subscription.on_demands_sent(2, wanted(1))
        assert not launched(subscription, 1, 2, is_resent=True)
        subscription.check()


class TestSeveralShapes:
    SEVERAL = (Demand(UNIT, 3), Demand(LARGE, 2), Demand(UNIT, 5, role=WEB), Demand(LARGE))
    ZONES = (Demand(UNIT, 5, (equals("zone", "a"),)), Demand(UNIT, 5, (equals("zone", "b"),)))

    def test_a_task_counts_down_the_equal_shape_in_the_role_of_its_offer(self) -> None:
        assert left(self.SEVERAL, ADS, UNIT) == [2, 2, 5, None]
        assert left(self.SEVERAL, WEB, UNIT) == [3, 2, 4, None]
        with_ports = Resources.parse("cpus:4;ports:[7-8]")
        assert left(self.SEVERAL, ADS, UNIT, with_ports) == [2, 1, 5, None]

    def test_a_task_of_another_size_counts_down_the_first_shape_that_fits_in_it(self) -> None:
        large_first = (self.SEVERAL[1], self.SEVERAL[0])
        odd, tiny = Resources.parse("cpus:2"), Resources.parse("cpus:0.1")
        assert left(self.SEVERAL, WEB, odd) == [3, 2, 4, None]
        assert left(large_first, ADS, odd) == [2, 2]
        assert left(large_first, ADS, tiny) == [1, 3]

    def test_a_shape_with_count_zero_is_skipped(self) -> None:
        assert left((Demand(UNIT, 0), Demand(LARGE, 2)), ADS, UNIT) == [0, 1]

    def test_a_task_in_a_role_without_demand_counts_down_none(self) -> None:
        assert left(self.SEVERAL, Role("other"), UNIT) == [3, 2, 5, None]

    def test_no_count_falls_below_zero(self) -> None:
        assert left(wanted(0), ADS, UNIT, UNIT) == [0]

    def test_a_task_counts_down_the_demand_whose_constraints_its_agent_passes(self) -> None:
        assert left(self.ZONES, ADS, UNIT, UNIT, zone="b") == [5, 3]
        assert left(self.ZONES, ADS, UNIT, zone="a") == [4, 5]
        assert left(self.ZONES, ADS, UNIT, zone="c") == [4, 5]
        assert left(self.ZONES, ADS, *[UNIT] * 7, zone="b") == [3, 0]

    @pytest.mark.parametrize("zone", ["a", "b", "c"])
    def test_the_master_counts_the_same(self, zone: str) -> None:
        world = World()
        anywhere = Demand(UNIT, 1, role=WEB)
        session = world.framework(roles=(ADS, WEB), demands=(*self.ZONES, anywhere))
        world.agent("cpus:4;mem:1GB", attributes=f"zone:{zone}")
        subscription = Subscription("", (*self.ZONES, anywhere), (ADS, WEB))
        seq = 0
        while offers := world.offers(session):
            seq += 1
            task = make_task(f"t{seq}", "cpus:1")
            assert world.accept(session, task).error is None
            launch = AcceptedTasks(offers[0].role, (UNIT,), {"zone": zone, "hostname": "host"})
            subscription.on_launched(seq, launch, is_resent=False)
            demands = world.state.allocator.queries.demands(world.framework_id(session))
            assert demands == subscription.demands
        assert seq == (1 if zone == "c" else 2)


class TestSuppression:
    def test_single_roles_or_all_are_suppressed(self) -> None:
        subscription = Subscription("", (), (ADS, WEB))
        lists = [list(subscription.suppressed)]
        for change, roles in (
            (subscription.suppress, [WEB]),
            (subscription.suppress, []),
            (subscription.revive, [ADS]),
            (subscription.revive, []),
        ):
            change(roles)
            lists.append(list(subscription.suppressed))
        assert lists == [[], [WEB], [ADS, WEB], [WEB], []]
        subscription.check()

    def test_a_role_must_be_the_frameworks_own(self) -> None:
        subscription = Subscription("", (), (ADS, WEB))
        assert subscription.own(["web"]) == (WEB,)
        assert subscription.own([]) == ()
        with pytest.raises(InvalidRequest, match="'dev' is not one"):
            subscription.own(["ads", "dev"])


# The bounds of a framework's connection.


async def test_all_unanswered_calls_fit_however_large_they_are() -> None:
    framework = Framework(master="127.0.0.1:1")
    outbox: Outbox[pb.Call] = framework._session._connection.make_outbox()
    large = pb.Call(accept=pb.Accept(offer_ids=["o" * 1_000_000]))
    for _ in range(Framework._settings.unanswered_limit):
        assert outbox.put(large)


@pytest.mark.parametrize(
    ("master", "latest", "is_sent"),
    [
        ("127.0.0.1:1", "127.0.0.1:1", True),
        ("10.0.0.1:1", "10.0.0.1:1", False),
        # Another master may lead next, and one may redirect to a machine that is not listed.
        ("127.0.0.1:1,10.0.0.1:1", "127.0.0.1:1", False),
        ("127.0.0.1:1", "10.0.0.1:1", False),
    ],
)
async def test_secrets_are_not_sent_unencrypted_to_another_machine(
    master: str, latest: str, is_sent: bool
) -> None:
    session = Framework(master=master)._session
    session._connection.address = Address.parse(latest)
    session.check_secrets(is_insecure=True)
    if is_sent:
        session.check_secrets()
    else:
        with pytest.raises(InvalidRequest, match="insecure=True"):
            session.check_secrets()


# The queue of events for the handlers.


async def nothing(_: object) -> None:
    return


CALL = HandlerCall(nothing, "f1")


class TestInbox:
    async def test_consecutive_offers_are_one_item(self) -> None:
        inbox = Inbox(10)
        inbox.put((offer("o1"),))
        inbox.put((offer("o2"),))
        inbox.put(CALL)
        inbox.put((offer("o3"),))
        first = await inbox.take()
        assert isinstance(first, tuple)
        assert [o.id for o in first] == ["o1", "o2"]
        assert await inbox.take() == CALL
        assert len(inbox) == 1

    def test_an_inbox_is_full_at_its_limit_or_four_times_that_while_a_call_is_unanswered(
        self,
    ) -> None:
        inbox = Inbox(2)
        for _ in range(2):
            inbox.put(CALL)
        assert inbox.is_full(unanswered=0)
        assert not inbox.is_full(unanswered=1)
        for _ in range(6):
            inbox.put(CALL)
        assert inbox.is_full(unanswered=1)

    async def test_taking_makes_room(self) -> None:
        inbox = Inbox(1)
        inbox.put(CALL)
        waiting = asyncio.create_task(inbox.room())
        await asyncio.sleep(0)
        assert not waiting.done()
        await inbox.take()
        await waiting

    async def test_a_closed_inbox_is_empty(self) -> None:
        inbox = Inbox(1)
        inbox.put(CALL)
        inbox.close()
        inbox.put(CALL)
        assert await inbox.take() is None
