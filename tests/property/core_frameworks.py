"""Rules of frameworks: subscriptions, answers to offers, demand and kills."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import consumes, rule

from croupier.master.core import calls
from croupier.master.core.effects import SessionId
from croupier.master.core.frameworks import Framework
from croupier.master.core.messages import Offered
from croupier.model.demand import Demand, Placement
from croupier.model.errors import InvalidRequest
from croupier.model.gang import ANY_AGENTS, GangPlacement
from croupier.model.ids import FrameworkId, HoldId, OfferId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.task import TaskInfo
from tests.harness.world import in_gang, in_group, make_task, with_volumes
from tests.property.core_world import AMOUNTS, DEMANDS, FRAMEWORKS, ROLES, CoreWorld

# An agent has up to six ports from a multiple of ten.
PORTS = st.sampled_from(["", "", ";ports:[0-2]", ";ports:[1-4]", ";ports:[2,10]", ";ports:[3]"])
PARTS = st.sampled_from(["member", "member", "sidecar", "leader"])


class FrameworkRules(CoreWorld):
    """Frameworks that connect, answer offers, change their demand and lie."""

    @rule(
        target=FRAMEWORKS,
        roles=st.lists(st.sampled_from(ROLES), min_size=1, max_size=3, unique=True),
        demands=DEMANDS,
        back=st.integers(0, 5),
        suppressed=st.booleans(),
        silent=st.lists(st.sampled_from(ROLES), max_size=1),
        client=st.sampled_from(["c1", "c2"]),
        who=st.sampled_from(["anna", "anna", "bob", "carl", "nobody"]),
    )
    def framework_subscribes(self, roles: list[str], back: int, **more: Any) -> SessionId:
        framework_id = self.known_frameworks[back] if back < len(self.known_frameworks) else ""
        known = self.world.state.frameworks.get(FrameworkId(framework_id))
        self.world.as_principal(self.named(more["who"]))
        session = self.world.framework(
            framework_id=framework_id,
            client_id=more["client"],
            failover_timeout_s=30.0,
            suppressed=more["suppressed"],
            roles=tuple(roles),
            demands=tuple(more["demands"]),
            suppressed_roles=tuple(more["silent"]),
        )
        self.world.as_principal("")
        if known is not None and known.owner not in ("", f"client/{more['who']}"):
            assert session in self.world.closed
        if session not in self.world.closed:
            self.known_frameworks.append(self.world.framework_id(session))
        return session

    def offered(self, session: SessionId) -> list[Offered]:
        messages = self.world.sent.get(session, [])
        return [message for message in messages if isinstance(message, Offered)]

    @rule(
        session=FRAMEWORKS,
        picks=st.lists(st.integers(0, 6), max_size=3),
        amounts=st.lists(AMOUNTS, max_size=3),
        reuse=st.booleans(),
        refuse=st.sampled_from([None, 0.0, 1.0, 100.0]),
    )
    def accepts(
        self,
        session: SessionId,
        picks: list[int],
        amounts: list[str],
        reuse: bool,
        refuse: float | None,
    ) -> None:
        offered = self.offered(session)
        ids = tuple(offered[-1 - pick].offer_id for pick in picks if pick < len(offered))
        tasks = []
        for amount in amounts:
            self.tasks += 0 if reuse else 1
            tasks.append(self.next_task(amount))
        self.call(session, calls.Accept(ids or (OfferId("none"),), tuple(tasks), refuse))

    @rule(pick=st.integers(0, 9), amounts=st.lists(AMOUNTS, min_size=1, max_size=3))
    def accepts_what_stands(self, pick: int, amounts: list[str]) -> None:
        standing = list(self.world.state.offers.values())
        if not standing:
            return
        self.launch(standing[pick % len(standing)].offer_id, *amounts)

    @rule(
        pick=st.integers(0, 9),
        members=st.lists(st.tuples(AMOUNTS, PARTS), min_size=1, max_size=3),
        submits=st.booleans(),
    )
    def launches_a_group(self, pick: int, members: list[tuple[str, str]], submits: bool) -> None:
        standing = list(self.world.state.offers.values())
        if not standing:
            return
        offer = standing[pick % len(standing)]
        framework = self.world.state.frameworks[offer.framework_id]
        assert framework.session is not None
        tasks: list[TaskInfo] = []
        for amount, part in members:
            self.tasks += 1
            tasks.append(in_group(f"g{self.tasks - len(tasks)}", self.next_task(amount), part))
        call: calls.Call = calls.Submit(tuple(tasks))
        if not submits:
            call = calls.Accept((offer.offer_id,), tuple(tasks))
        before = self.tasks_known(offer.framework_id)
        self.call(framework.session, call)
        new = self.tasks_known(offer.framework_id) - before
        assert new in (set(), {task.task_id for task in tasks}), "all are launched, or none"

    @rule(
        session=FRAMEWORKS,
        members=st.lists(st.tuples(AMOUNTS, PARTS), min_size=1, max_size=4),
        placement=st.sampled_from(
            [
                ANY_AGENTS,
                GangPlacement(spread="host"),
                GangPlacement(same="hostname"),
                GangPlacement(pack=True),
            ]
        ),
        per_agent=st.sampled_from([None, None, 1, 2]),
        restarts=st.sampled_from([0, 1, 3]),
    )
    def submits_a_gang(
        self,
        session: SessionId,
        members: list[tuple[str, str]],
        placement: GangPlacement,
        per_agent: int | None,
        restarts: int,
    ) -> None:
        framework = self.world.state.peers.get(session)
        if not isinstance(framework, Framework):
            return
        tasks: list[TaskInfo] = []
        for amount, _ in members:
            self.tasks += 1
            tasks.append(self.next_task(amount))
        parts = [part for _, part in members]
        name = f"gang{self.tasks}"
        gang = in_gang(name, *tasks, parts=parts, placement=placement, restarts=restarts)
        before = self.tasks_known(framework.framework_id)
        self.call(session, calls.Submit(gang, placement=Placement(max_per_agent=per_agent)))
        new = self.tasks_known(framework.framework_id) - before
        assert new in (set(), {task.task_id for task in tasks}), "all are queued, or none"

    def tasks_known(self, framework_id: FrameworkId) -> set[TaskId]:
        framework = self.world.state.frameworks.get(framework_id)
        return set(framework.tasks) if framework is not None else set()

    @rule(
        pick=st.integers(0, 9),
        ttl_s=st.sampled_from([0, 5, 60, 600]),
        for_role=st.booleans(),
        amount=AMOUNTS,
        amounts=st.lists(AMOUNTS, max_size=2),
        released=st.integers(0, 20),
        ports=st.lists(PORTS, min_size=3, max_size=3),
    )
    def holds(
        self,
        pick: int,
        ttl_s: int,
        for_role: bool,
        amount: str,
        amounts: list[str],
        released: int,
        ports: list[str],
    ) -> None:
        """Hold a part of all offers of an agent to a framework, and launch tasks in it."""
        standing = list(self.world.state.offers.values())
        if not standing:
            return
        one = standing[pick % len(standing)]
        place = (one.framework_id, one.agent_id, one.role)
        ids = [o.offer_id for o in standing if (o.framework_id, o.agent_id, o.role) == place]
        self.holds_made += 1
        hold = calls.MakeHold(
            HoldId(f"h{self.holds_made}"),
            Resources.parse(amount + ports[2]),
            ttl_s * 1000,
            for_role,
        )
        tasks = []
        for each, numbers in zip(amounts, ports, strict=False):
            self.tasks += 1
            tasks.append(self.next_task(each + numbers))
        session = self.world.state.frameworks[one.framework_id].session
        assert session is not None
        ends = (HoldId(f"h{released}"),) if released < 10 else ()
        accept = calls.Accept(tuple(ids), tuple(tasks), holds=(hold,), releases=ends)
        self.call(session, accept)

    @rule(
        pick=st.integers(0, 9),
        number=st.integers(0, 3),
        for_role=st.booleans(),
        held=st.sampled_from(["", "disk:1GB", "cpus:1;disk:2GB"]),
    )
    def makes_a_volume(self, pick: int, number: int, for_role: bool, held: str) -> None:
        """Make a volume of an offer, and launch a task with it, and perhaps with another one.

        Its disk is that of the hold `held`, which is made before, if there is one.
        """
        standing = list(self.world.state.offers.values())
        if not standing:
            return
        offer = standing[pick % len(standing)]
        framework = self.world.state.frameworks[offer.framework_id]
        assert framework.session is not None
        name = HoldId(f"h{number}")
        volume = calls.MakeHold(name, Resources.parse("disk:1GB"), 0, for_role, volume=True)
        self.tasks += 2
        role = f"@{offer.role}" if for_role else ""
        task = with_volumes(self.next_task("cpus:1;mem:1GB"), f"{name}{role}")
        holds: tuple[calls.MakeHold, ...] = (volume,)
        if held:
            hold = calls.MakeHold(HoldId(f"h{number}.of"), Resources.parse(held), 0, for_role)
            holds = (hold, volume)
        accept = calls.Accept((offer.offer_id,), (task,), holds=holds)
        self.call(framework.session, accept)
        again = with_volumes(make_task(f"{task.task_id}.again", "cpus:1;mem:1GB"), f"{name}{role}")
        self.call(framework.session, calls.Submit((again,)))

    @rule(pick=st.integers(0, 9))
    def a_task_follows_in_a_hold(self, pick: int) -> None:
        """End a task in a hold, and launch one like it there before its end is acknowledged."""
        self.follow_in_hold(pick)

    @rule(number=st.integers(0, 6))
    def releases_a_hold(self, number: int) -> None:
        """Let all frameworks release one; the hold is of one of them, or of none."""
        known = sorted(self.world.state.holds)
        hold_id = known[number] if number < len(known) else HoldId(f"h{number}")
        for framework in list(self.world.state.frameworks.values()):
            if framework.session is not None:
                self.call(framework.session, calls.Release((hold_id,)))

    @rule(session=FRAMEWORKS, pick=st.integers(0, 3), refuse=st.sampled_from([None, 0.0, 50.0]))
    def declines(self, session: SessionId, pick: int, refuse: float | None) -> None:
        offered = self.offered(session)
        if pick < len(offered):
            self.call(session, calls.Decline((offered[-1 - pick].offer_id,), refuse))

    @rule(session=FRAMEWORKS, demands=DEMANDS)
    def changes_demand(self, session: SessionId, demands: list[Demand]) -> None:
        self.call(session, calls.UpdateDemand(tuple(demands)))

    @rule(
        session=FRAMEWORKS,
        kind=st.sampled_from([calls.Suppress, calls.Revive]),
        roles=st.lists(st.sampled_from(ROLES), max_size=2, unique=True),
    )
    def silences_roles(
        self, session: SessionId, kind: type[calls.Suppress | calls.Revive], roles: list[Role]
    ) -> None:
        self.call(session, kind(tuple(roles)))

    @rule(
        session=FRAMEWORKS,
        call=st.sampled_from(
            [calls.Reconcile(()), calls.Malformed("accept", InvalidRequest("bad"), (TaskId("x"),))]
        ),
    )
    def calls_simply(self, session: SessionId, call: calls.Call) -> None:
        self.call(session, call)

    @rule(session=FRAMEWORKS, number=st.integers(0, 30))
    def kills(self, session: SessionId, number: int) -> None:
        self.call(session, calls.Kill(TaskId(f"t{number}")))

    @rule(session=FRAMEWORKS, number=st.integers(0, 30), sequence=st.integers(0, 4))
    def acknowledges(self, session: SessionId, number: int, sequence: int) -> None:
        for agent_id in self.world.state.agents:
            update = (agent_id, TaskId(f"t{number}"), sequence)
            self.call(session, calls.Acknowledge((update,)))

    @rule(pick=st.integers(0, 5))
    def acknowledges_all(self, pick: int) -> None:
        known = list(self.world.state.frameworks.values())
        if not known or (session := known[pick % len(known)].session) is None:
            return
        updates = [
            (task.agent_id, task.task_id, task.sequence)
            for task in known[pick % len(known)].tasks.values()
        ]
        self.call(session, calls.Acknowledge(tuple(updates)))

    @rule(session=consumes(FRAMEWORKS))
    def tears_down(self, session: SessionId) -> None:
        self.call(session, calls.Teardown())
