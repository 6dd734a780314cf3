"""Every invariant of the core holds after every step of any sequence of events."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import consumes, invariant, rule

from croupier.master.core.agent_status import drain_progress
from croupier.master.core.effects import SessionId
from croupier.master.core.frameworks import FrameworkState
from croupier.master.core.state import State
from croupier.model.task import TERMINAL, TaskState
from tests.harness.effort import portion
from tests.property.core_access import AccessRules
from tests.property.core_agents import AgentRules
from tests.property.core_frameworks import FrameworkRules
from tests.property.core_operators import OperatorRules
from tests.property.core_world import AGENTS, FRAMEWORKS, ROOMY, listed_tasks


class CoreMachine(AgentRules, FrameworkRules, OperatorRules, AccessRules):
    """Agents and frameworks that connect, disconnect, lie and repeat themselves."""

    @rule(lot=st.integers(0, 3))
    def master_restarts(self, lot: int) -> None:
        """Fail over: the next master knows the same agents, frameworks and tasks."""
        if lot != 3:
            return
        before = _lasting(self.world.state)
        self.world.restart()
        assert _lasting(self.world.state) == before

    @rule(lost=st.sampled_from([0, 0, 2, 3]))
    def all_return(self, lost: int) -> None:
        """Return all agents and frameworks, with or without some of their tasks."""
        state = self.world.state
        for agent in list(state.agents.values()):
            if agent.session is None:
                known = list(agent.tasks.values())
                kept = [task for n, task in enumerate(known) if not lost or n % lost]
                listed = listed_tasks(kept)
                self.world.agent(ROOMY, agent.hostname, agent_id=agent.agent_id, tasks=listed)
        for framework in list(state.frameworks.values()):
            if framework.state is FrameworkState.DISCONNECTED:
                self.world.as_principal(framework.owner or self.named("carl"))
                self.world.framework(
                    roles=framework.roles,
                    framework_id=framework.framework_id,
                    failover_timeout_s=30.0,
                )
                self.world.as_principal("")

    @rule(session=st.one_of(consumes(AGENTS), consumes(FRAMEWORKS)))
    def stream_breaks(self, session: SessionId) -> None:
        self.world.end_session(session)

    @rule(seconds=st.sampled_from([0.5, 6.0, 12.0, 40.0, 80.0, 700.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @invariant()
    def drained_agents_are_emptied(self) -> None:
        """Assert that each of their tasks has a kill, ordered if its agent is connected."""
        if not hasattr(self, "world"):
            return
        for agent in self.world.state.agents.values():
            live = [task for task in agent.tasks.values() if not task.state.is_terminal]
            found = drain_progress(self.world.state, agent, self.world.now)
            if agent.drain is None:
                assert found is None
                continue
            assert found is not None
            assert found.tasks_left == len(live)
            # An absent agent may have reported the end of a task to an earlier master.
            assert all(task.kill is not None or task.is_absent for task in live)
            assert agent.session is None or all(
                task.kill is not None and task.kill.due is not None for task in live
            )
            assert not agent.is_offered

    def teardown(self) -> None:
        """Assert that everything can be freed in the end."""
        if not hasattr(self, "world"):
            return
        state = self.world.state
        for session in list(state.peers):
            self.world.end_session(session)
        self.world.pass_time(2000.0)
        assert not state.offers
        assert not any(agent.in_pool for agent in state.agents.values())
        for framework in state.frameworks.values():
            for task in framework.tasks.values():
                assert task.state in TERMINAL or task.state is TaskState.UNREACHABLE
                assert not task.is_active


def _lasting(state: State) -> object:
    """Return what must survive a failover."""
    return (
        {agent_id: agent.record() for agent_id, agent in state.agents.items()},
        set(state.gone),
        state.access,
        list(state.tokens),
        {
            hold_id: (hold.place, hold.owner, hold.resources)
            for hold_id, hold in state.holds.items()
        },
        {
            framework_id: (framework.is_removed, framework.owner)
            for framework_id, framework in state.frameworks.items()
        },
        {
            (framework_id, task_id): (
                task.agent_id,
                # A drain shortens it again when the agent returns.
                None if framework.is_removed else task.record().kill,
                task.master_status,
                task.is_orphan,
            )
            for framework_id, framework in state.frameworks.items()
            for task_id, task in framework.tasks.items()
        },
    )


TestCore = CoreMachine.TestCase
TestCore.settings = settings(
    max_examples=portion(150),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
