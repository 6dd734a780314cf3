"""Rules of agents: registrations, health, status updates and nonsense."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import consumes, rule

from croupier.master.core.agents import Agent
from croupier.master.core.effects import Close, Deposed, SessionId
from croupier.master.core.events import (
    AgentHealth,
    AgentStopped,
    Claim,
    Received,
    RefusedLaunch,
    Register,
)
from croupier.model.health import Problem
from croupier.model.resources import Resources
from croupier.model.task import TERMINAL, TaskState
from tests.harness.secured_world import caller
from tests.property.core_world import AGENTS, ROOMY, SMALL, CoreWorld, listed_tasks

REPORTED = st.sampled_from(
    [
        TaskState.STARTING,
        TaskState.RUNNING,
        TaskState.KILLING,
        TaskState.FINISHED,
        TaskState.FAILED,
        TaskState.KILLED,
    ]
)


class AgentRules(CoreWorld):
    """Agents that connect, repeat themselves and lie."""

    @rule(target=AGENTS, cpus=SMALL, back=st.integers(0, 5), keep=st.booleans())
    def agent_registers(self, cpus: int, back: int, keep: bool) -> SessionId:
        is_known = back < len(self.known_agents)
        agent_id = self.known_agents[back] if is_known else self.new_agent_id()
        known = self.world.state.agents.get(agent_id)
        listed = listed_tasks(list(known.tasks.values())) if known is not None and keep else ()
        resources = f"cpus:{cpus * 2};mem:{cpus * 3}GB;disk:9GB;ports:[{back * 10}-{back * 10 + 5}]"
        features = "groups,volumes,gangs,requeue" if back % 3 else ""
        session = self.world.agent(
            resources, f"h{back}", agent_id=agent_id, tasks=listed, features=features
        )
        if session not in self.world.closed:
            self.known_agents.append(self.world.agent_id(session))
        return session

    @rule(pick=st.integers(0, 5), claim=st.sampled_from(Claim))
    def impostor_registers(self, pick: int, claim: Claim) -> None:
        """Register under the id of another agent; nothing happens to that agent."""
        if not self.is_auth_on or pick >= len(self.known_agents):
            return
        agent_id = self.known_agents[pick]
        agent = self.world.state.agents.get(agent_id)
        before = (agent and agent.session, len(self.world.saved))
        total = Resources.parse(ROOMY)
        event = Register(SessionId(-1), agent_id, "evil", total, {}, claim=claim)
        effects = self.world.do(replace(event, principal=caller("agent/evil")))
        assert isinstance(effects[0], Close)
        assert not any(isinstance(effect, Deposed) for effect in effects)
        assert (agent and agent.session, len(self.world.saved)) == before

    @rule(session=AGENTS)
    def agent_is_heard(self, session: SessionId) -> None:
        self.world.do(Received(session))

    @rule(session=AGENTS, is_full=st.booleans(), refuses=st.booleans())
    def agent_tells_its_health(self, session: SessionId, is_full: bool, refuses: bool) -> None:
        """Report health; refusals may name launches that the agent executed long ago."""
        peer = self.world.state.peers.get(session)
        tasks = list(peer.tasks) if isinstance(peer, Agent) and refuses else []
        refused = tuple(RefusedLaunch(*key, "it is full") for key in tasks)
        problems = (Problem("disk", "it is full"),) if is_full else ()
        self.world.do(AgentHealth(session, problems, refused))
        if isinstance(peer, Agent):
            assert not (is_full and peer.offers)
            for key, task in peer.tasks.items():
                assert key not in tasks or task.sequence or task.state in TERMINAL

    @rule(pick=st.integers(0, 5), state=REPORTED, step=st.integers(0, 2))
    def agent_reports(self, pick: int, state: TaskState, step: int) -> None:
        live = [
            (agent.session, task)
            for agent in self.world.state.agents.values()
            for task in agent.tasks.values()
            if agent.session is not None
        ]
        if live:
            session, task = live[pick % len(live)]
            assert session is not None
            number = max(task.sequence + step, 1)
            self.world.report(session, task.framework_id, task.task_id, state, number)

    @rule(session=AGENTS, agent_id=st.sampled_from(["", "other"]))
    def agent_reports_nonsense(self, session: SessionId, agent_id: str) -> None:
        if session in self.world.state.peers:
            self.world.report(session, "unknown", "t1", TaskState.FINISHED, 1, agent_id)

    @rule(session=consumes(AGENTS))
    def agent_stops(self, session: SessionId) -> None:
        self.world.do(AgentStopped(session, "bye"))
