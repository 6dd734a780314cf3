"""The log of any run replays with the same decisions; reads change nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from croupier.master.allocator import Rules
from croupier.master.allocator.policies import NAMES
from croupier.master.allocator.starvation import PreemptionRules
from croupier.master.core.role_commands import UpdateRoles
from croupier.master.core.roles import RoleChange
from croupier.master.core.settings import Settings
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.roles import RoleSettings
from croupier.sim.replay.change import Change
from croupier.sim.replay.result import find
from tests.harness.effort import portion
from tests.harness.reasons import reasons_of
from tests.harness.recorded import RecordedWorld, make_head
from tests.harness.role_statuses import role_statuses
from tests.harness.secured_world import SecuredWorld, caller
from tests.property.core_world import POLICY
from tests.property.test_core import CoreMachine

ROLES = st.sampled_from(["r1", "r1/x", "r2", "r3"]).map(Role)


class SecuredLog(RecordedWorld, SecuredWorld):
    """A secured world that logs every step."""


class RecordedMachine(CoreMachine):
    """The core's machine with an event log, and operators that read and change."""

    @initialize(
        weight=st.integers(1, 3),
        policy=st.sampled_from(NAMES),
        order=st.sampled_from(["arrival", "random", "pack", "spread"]),
        preemption=st.booleans(),
        is_auth_on=st.booleans(),
    )
    def begin(
        self,
        weight: int,
        is_auth_on: bool,
        policy: str = "drf",
        order: str = "arrival",
        preemption: bool = False,
    ) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "log"
        rules = PreemptionRules(is_on=preemption, fair_timeout_s=2, guarantee_timeout_s=1)
        head = make_head(
            Settings(preemption=rules, auth=is_auth_on),
            policy,
            Rules(order=order, remembers_misfits=True),
            {Role("r1"): RoleSettings(weight * 1000)},
        )
        self.log = SecuredLog(self.path, head, size=20_000)
        self.log.allow(*POLICY)
        self.world = self.log
        self.is_auth_on, self.agents_made = is_auth_on, 0
        self.known_agents: list[AgentId] = []
        self.known_frameworks: list[FrameworkId] = []
        self.tasks = 0
        self.seq = 0
        self.populate(is_held=True)

    @rule(
        role=ROLES,
        guarantee=st.integers(0, 3),
        limit=st.one_of(st.none(), st.integers(0, 9)),
        preemption=st.sampled_from([None, None, True, False]),
        half_life_h=st.sampled_from([0, 0, 1, 24]),
    )
    def an_operator_sets_a_role(
        self,
        role: Role,
        guarantee: int,
        limit: int | None,
        preemption: bool | None,
        half_life_h: int,
    ) -> None:
        """Change a role by a command; contradictory settings are refused."""
        settings = RoleSettings(
            weight=1000 + 500 * guarantee,
            guarantee={"cpus": guarantee * 1000} if guarantee else {},
            limit={} if limit is None else {"cpus": limit * 1000},
            preemption=preemption,
            half_life_ms=half_life_h * 3_600_000,
        )
        by = caller("local-admin")
        self.world.do(UpdateRoles(1, (RoleChange(role, settings),), force=True, caller=by))

    @rule()
    def operator_asks(self) -> None:
        """Read everything that operators and scrapes read."""
        state = self.world.state
        role_statuses(state)
        list(state.allocator.queries.what_if({Role("r1"): RoleSettings(7000)}).moved())
        assert state.allocator.dirty_agents >= 0
        state.next_deadline()
        for framework_id in state.frameworks:
            state.allocator.queries.share(framework_id)
            state.allocator.queries.entitlement(framework_id)
            reasons_of(state.allocator.queries, framework_id, None, self.world.now)
            for agent_id, agent in state.agents.items():
                if agent.in_pool:
                    reasons_of(state.allocator.queries, framework_id, agent_id, self.world.now)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        with self.folder:
            self.log.close()
            for path in self.log.logs:
                found = find(path, Change(), lambda done, text="": None)
                assert found.digest is not None


TestReplay = RecordedMachine.TestCase
TestReplay.settings = settings(
    max_examples=portion(60),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
