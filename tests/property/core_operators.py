"""Rules of operators: settings of roles, operations on agents, and kills."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import rule

from croupier.master.core import calls
from croupier.master.core.agent_commands import (
    AgentAction,
    Deactivate,
    Drain,
    MarkGone,
    OperateAgent,
    Reactivate,
)
from croupier.master.core.agent_status import AgentStatus, agent_status
from croupier.master.core.agents import AgentState
from croupier.master.core.effects import Answer
from croupier.master.core.events import AccountingDue, TimePassed
from croupier.master.core.framework_commands import OperatorKill
from croupier.master.core.hold_commands import CreateHold, ReleaseHold
from croupier.master.core.reservation_commands import CreateReservation, DeleteReservation
from croupier.master.core.reservations import NewReservation, Times
from croupier.master.core.tasks import Task
from croupier.master.core.usage_buckets import HOUR_MS
from croupier.model.budget import Budget, BudgetAction, BudgetPeriod
from croupier.model.ids import AgentId, FrameworkId, HoldId, Role, TaskId
from croupier.model.reservation import DAY_MS
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from tests.harness.secured_world import ADMIN, NOW_MS, caller
from tests.property.core_world import AMOUNTS, ROLES, CoreWorld, may_administer

# 2026-11-27 12:00 UTC.
NOON = 1_795_780_800_000


class OperatorRules(CoreWorld):
    """Operators that change roles, operate agents and kill tasks."""

    @rule(
        role=st.sampled_from(ROLES),
        guarantee=st.integers(0, 3),
        limit=st.one_of(st.none(), st.integers(3, 9)),
        preemption=st.sampled_from([None, None, True, False]),
        half_life_h=st.sampled_from([0, 0, 1, 24]),
        action=st.sampled_from([None, None, None, *BudgetAction]),
    )
    def an_operator_sets_a_role(
        self,
        role: Role,
        guarantee: int,
        limit: int | None,
        preemption: bool | None,
        half_life_h: int,
        action: BudgetAction | None,
    ) -> None:
        settings = RoleSettings(
            guarantee={"cpus": guarantee * 1000} if guarantee else {},
            limit={} if limit is None else {"cpus": limit * 1000},
            preemption=preemption,
            half_life_ms=half_life_h * HOUR_MS,
            # It is used up as soon as anything is used.
            budget=action and Budget({"cpus": 1}, BudgetPeriod.DAY, action),
        )
        self.world.state.allocator.set_role(role, settings)
        self.world.do(TimePassed())
        self.accounting_is_due()

    @rule()
    def accounting_is_due(self) -> None:
        self.world.do(AccountingDue(NOON + round(self.world.now * 1000)))

    @rule(
        pick=st.integers(0, 5),
        action=st.sampled_from(
            [
                Drain(),
                Drain(1000),
                Drain(5000),
                Deactivate(),
                Reactivate(),
                Reactivate(),
                MarkGone(),
            ]
        ),
        named=st.sampled_from(["id", "id", "hostname"]),
    )
    def operator_operates(self, pick: int, action: AgentAction, named: str) -> None:
        if pick >= len(self.known_agents):
            return
        name = self.known_agents[pick] if named == "id" else f"h{pick}"
        state = self.world.state
        known = state.agents.get(AgentId(name))
        effects = self.world.do(OperateAgent(1, name, action, caller=caller("local-admin")))
        (answer,) = [each.result for each in effects if isinstance(each, Answer)]
        if known is None:
            return
        status = agent_status(state, known, self.world.now)
        # The pass that follows the answer may offer the agent and its holds again.
        assert isinstance(answer, AgentStatus)
        answer = replace(answer, offered=status.offered, held=status.held)
        if isinstance(action, Reactivate):
            # It may also launch submitted tasks there.
            answer = replace(answer, used=status.used, tasks=status.tasks)
        assert answer == status
        assert known.deactivated or not isinstance(action, Deactivate)
        assert (known.drain is not None) or not isinstance(action, Drain)
        assert (name in state.gone) == isinstance(action, MarkGone)
        assert not known.offers or isinstance(action, Reactivate)
        if isinstance(action, Reactivate):
            # An agent that cannot launch tasks stays withheld.
            is_able = known.state is AgentState.CONNECTED and not known.problems
            assert known.is_offered == is_able

    @rule(number=st.integers(0, 30), who=st.sampled_from(["local-admin", "anna", "nobody"]))
    def operator_kills(self, number: int, who: str) -> None:
        before = {id(task): task.kill for task in self.all_tasks()}
        command = OperatorKill(1, TaskId(f"t{number}"), FrameworkId(""), None, caller(who))
        self.world.do(command)
        is_admin = may_administer(self.world.state, caller(who))
        for task in self.all_tasks():
            owner = self.world.state.frameworks[task.framework_id].owner
            if not is_admin and owner != f"client/{who}":
                assert task.kill == before[id(task)]

    def all_tasks(self) -> list[Task]:
        known = self.world.state.frameworks.values()
        return [task for framework in known for task in framework.tasks.values()]

    @rule(
        pick=st.integers(0, 5),
        role=st.sampled_from(ROLES),
        amount=AMOUNTS,
        ttl_s=st.sampled_from([0, 5, 100]),
    )
    def an_operator_holds_resources(self, pick: int, role: Role, amount: str, ttl_s: int) -> None:
        known = list(self.world.state.agents)
        if known:
            wanted = calls.MakeHold(HoldId(""), Resources.parse(amount), ttl_s * 1000)
            self.world.do(CreateHold(1, known[pick % len(known)], role, wanted, "", ADMIN))

    @rule(pick=st.integers(0, 9))
    def an_operator_releases_a_hold(self, pick: int) -> None:
        known = list(self.world.state.holds)
        if known:
            self.world.do(ReleaseHold(1, known[pick % len(known)], "", ADMIN))

    @rule(
        role=st.sampled_from(ROLES),
        agents=st.integers(1, 3),
        begin_s=st.sampled_from([0, 5, 60]),
        length_s=st.sampled_from([10, 100]),
        is_daily=st.booleans(),
        notice_s=st.sampled_from([0, 5, 100]),
    )
    def an_operator_reserves_agents(
        self, role: Role, agents: int, begin_s: int, length_s: int, is_daily: bool, notice_s: int
    ) -> None:
        wall_ms = NOW_MS + round(1000 * self.world.now)
        begin_ms = wall_ms + 1000 * begin_s
        times = Times(begin_ms, begin_ms + 1000 * length_s, DAY_MS if is_daily else 0)
        wanted = NewReservation(role, agents, times, notice_ms=1000 * notice_s)
        self.world.do(CreateReservation(1, wanted, wall_ms, "", ADMIN))

    @rule(pick=st.integers(0, 9))
    def an_operator_deletes_a_reservation(self, pick: int) -> None:
        known = list(self.world.state.reservations)
        if known:
            self.world.do(DeleteReservation(1, known[pick % len(known)], "", ADMIN))

    @rule(jump_s=st.sampled_from([0, 0, -30, 30, 100_000]))
    def the_time_of_day_is_told(self, jump_s: int) -> None:
        self.world.do(AccountingDue(NOW_MS + round(1000 * (self.world.now + jump_s))))
