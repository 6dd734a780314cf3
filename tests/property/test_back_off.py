"""How long the offers that one party leaves unanswered keep a framework waiting.

A holder, one principal with several frameworks or one framework without an owner, does what it can
to keep all agents without running a task: it lets leases end, declines late, passes agents on
from one of its frameworks to the next, and breaks its streams. An honest framework runs one task
after the other. It waits only while the holder has every agent.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from random import Random

import pytest

from croupier.master.allocator.back_off import FIRST_S, FORGET_S, MOMENT_S, PATIENCE_S, BackOff
from croupier.master.core import calls
from croupier.master.core.effects import SessionId
from croupier.master.core.events import SessionEnded, TimePassed
from croupier.model.demand import Demand
from croupier.model.ids import OfferId
from croupier.model.principal import PrincipalName
from croupier.model.resources import Resources
from croupier.model.task import TaskState
from tests.harness.world import World, make_task

LEASE_S = 15.0
RUN_S = 200.0
# Time that passes between two looks at the cluster.
STEP_S = 0.5
UNIT = Resources.parse("cpus:1")


@dataclass
class Waits:
    """How long the honest framework waited, and how often."""

    longest: float = 0.0
    total: float = 0.0
    count: int = 0


class Contest:
    """The holder and the honest framework on a few agents."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(f"back-off {seed}")
        self.world = World()
        self.owner = random.choice(("", "client/holder", "client/holder"))
        self.agents = {}
        for number in range(random.choice((1, 1, 2, 3))):
            session = self.world.agent("cpus:1", f"h{number}")
            self.agents[self.world.agent_id(session)] = session
        self.holders: dict[str, SessionId] = {}
        for _ in range(random.randint(1, 6) if self.owner else 1):
            self.subscribe_holder("")
        self.honest = self.world.framework("*", name="honest")
        self.demand(None)
        self.running: tuple[str, float, SessionId] | None = None
        self.tasks = 0
        self.next_demand = 0.0
        # When each held offer is declined; the others are left to their leases.
        self.declines: dict[str, float] = {}
        self.is_late = random.choice((True, False))

    def subscribe_holder(self, framework_id: str) -> None:
        session = self.world.framework(
            "*", framework_id=framework_id, offer_lease_s=LEASE_S, allocate=False
        )
        framework = self.world.state.frameworks[self.world.framework_id(session)]
        if self.owner and not framework.owner:
            self.world.state.set_owner(framework, PrincipalName(self.owner))
        self.holders[framework.framework_id] = session
        self.world.do(TimePassed())

    def demand(self, count: int | None) -> None:
        demands = (Demand(UNIT, count or 0),)
        self.world.call(self.honest, calls.UpdateDemand(demands))

    def run(self) -> Waits:
        waits, since = Waits(), None
        while self.world.now < RUN_S:
            self.hold()
            waiting = self.work()
            if waiting and since is None:
                since = self.world.now
                waits.count += 1
            elif not waiting and since is not None:
                waits.longest = max(waits.longest, self.world.now - since)
                waits.total += self.world.now - since
                since = None
            for peer in self.world.state.peers.values():
                peer.last_received = self.world.now + STEP_S
            self.world.pass_time(STEP_S)
        return waits

    def hold(self) -> None:
        """Let the holder decline some of its offers late, or break its streams."""
        for framework_id, session in list(self.holders.items()):
            for offer in self.world.offers(session):
                age = self.world.now - self.world.state.offers[offer.offer_id].made_at
                at = self.declines.setdefault(
                    offer.offer_id, self.random.choice((2.0, 4.5, 14.0) if self.is_late else (99,))
                )
                if age >= at:
                    if self.random.random() < 0.2:
                        self.world.do(SessionEnded(session, "broken"))
                        self.subscribe_holder(framework_id)
                    else:
                        ids = (OfferId(offer.offer_id),)
                        self.world.call(session, calls.Decline(ids, 0.0))
                    break
            else:
                if self.random.random() < 0.3:
                    self.world.call(session, calls.Revive())

    def work(self) -> bool:
        """Let the honest framework go on; return whether it waits for an offer."""
        world, now = self.world, self.world.now
        if self.running is not None:
            task_id, ends_at, agent = self.running
            if now >= ends_at:
                world.report(agent, world.framework_id(self.honest), task_id, TaskState.FINISHED, 1)
                self.running, self.next_demand = None, now + self.random.choice((0.0, 2.0))
                if self.next_demand == now:
                    self.demand(1)
            return False
        if now < self.next_demand:
            return False
        offers = world.offers(self.honest)
        if not offers:
            self.demand(1)
            offers = world.offers(self.honest)
        if not offers:
            return True
        self.tasks += 1
        agent_id = world.state.offers[offers[0].offer_id].agent_id
        world.accept(self.honest, make_task(f"t{self.tasks}", "cpus:1"))
        self.running = f"t{self.tasks}", now + self.random.choice((0.5, 3.0)), self.agents[agent_id]
        return False


def is_bounded(waits: Waits) -> bool:
    """Return whether the waits are within the bound of docs/fairness.md."""
    longest = PATIENCE_S + LEASE_S + 2 * STEP_S
    back_offs = 1 + log2(1 + RUN_S / FIRST_S) + RUN_S / FORGET_S
    moments = waits.count * (MOMENT_S + 2 * STEP_S)
    return waits.longest <= longest and waits.total <= back_offs * longest + moments


@pytest.mark.parametrize("seed", range(6))
def test_unanswered_offers_of_one_party_keep_an_honest_framework_for_a_bounded_time(
    seed: int,
) -> None:
    contest = Contest(seed)
    waits = contest.run()
    print(contest.owner, len(contest.holders), len(contest.agents), waits, contest.tasks)
    assert is_bounded(waits)
    assert contest.tasks > 10


def test_without_a_back_off_the_bound_is_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BackOff, "ended", lambda *_: None)
    assert not all(is_bounded(Contest(seed).run()) for seed in range(2))
