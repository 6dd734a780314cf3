"""Every invariant of the core holds after every step of any sequence of events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from croupier.master.allocator.starvation import PreemptionRules
from croupier.master.core import calls
from croupier.master.core.access_records import TokenId, TokenKind
from croupier.master.core.agent_commands import (
    AgentAction,
    Deactivate,
    Drain,
    MarkGone,
    OperateAgent,
    Reactivate,
)
from croupier.master.core.agent_status import AgentStatus, agent_status
from croupier.master.core.agents import Agent
from croupier.master.core.drains import drain_progress
from croupier.master.core.effects import Answer, Close, Deposed, SessionId
from croupier.master.core.events import (
    AgentHealth,
    AgentStopped,
    AgentTask,
    Claim,
    FrameworkCalled,
    Received,
    RefusedLaunch,
    Register,
    TimePassed,
)
from croupier.master.core.messages import Offered
from croupier.master.core.policy_changes import (
    AddMember,
    PolicyChange,
    RemoveMember,
    RemoveRule,
    SetGroup,
    SetRule,
)
from croupier.master.core.policy_commands import UpdatePolicy
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.master.core.task_commands import OperatorKill
from croupier.master.core.tasks import Task
from croupier.master.core.token_commands import CreateToken, JoinAgent, RevokeToken
from croupier.model.access import CLUSTER as CLUSTER_OBJECT
from croupier.model.access import Action, decide
from croupier.model.demand import Demand
from croupier.model.errors import InvalidRequest
from croupier.model.health import Problem
from croupier.model.ids import AgentId, FrameworkId, OfferId, Role, TaskId
from croupier.model.principal import Principal
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from croupier.model.task import TERMINAL, Command, Source, TaskInfo, TaskState, TaskStatus
from tests.harness.secured_world import NOW_MS, SecuredWorld, caller, token
from tests.harness.secured_world import rule as rule_of
from tests.harness.world import make_task

POLICY = (
    "anna client/anna register role:r1",
    "bob client/bob register role:**",
    "carl client/carl register role:**",
    "bob-as client/bob run-as user:*",
    "anna-as client/anna run-as user:(agent)",
)
SMALL = st.integers(1, 4)
AMOUNTS = st.builds(lambda cpus, mem: f"cpus:{cpus};mem:{mem}GB", SMALL, SMALL)
ROOMY = "cpus:16;mem:32GB"
ROLES = [Role("r1"), Role("r1/x"), Role("r2"), Role("r3")]
DEMANDS = st.lists(
    st.builds(
        lambda amount, count, role, least: Demand(
            Resources.parse(amount), count, min_per_offer=least, max_per_offer=3, role=role
        ),
        AMOUNTS,
        st.one_of(st.none(), st.integers(0, 4)),
        st.sampled_from([None, None, *ROLES]),
        st.integers(1, 2),
    ),
    max_size=3,
)
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


def may_administer(state: State, principal: Principal) -> bool:
    return bool(decide(state.access, principal, Action.ADMINISTER, CLUSTER_OBJECT))


class CoreMachine(RuleBasedStateMachine):
    """Agents and frameworks that connect, disconnect, lie and repeat themselves."""

    agents = Bundle("agents")
    frameworks = Bundle("frameworks")

    @initialize(weight=st.integers(1, 3), is_auth_on=st.booleans())
    def begin(self, weight: int, is_auth_on: bool) -> None:
        rules = PreemptionRules(True, fair_timeout_s=4.0, guarantee_timeout_s=2.0, grace_s=3.0)
        roles = {Role("r1"): RoleSettings(weight * 1000), Role("r2"): RoleSettings(1000)}
        # Few agents may become unreachable at once, and few gone ones are remembered.
        small = Settings(preemption=rules, removals=3, gone_agents=2)
        self.world = SecuredWorld(*POLICY, settings=small, is_on=is_auth_on, roles=roles)
        self.is_auth_on, self.agents_made = is_auth_on, 0
        self.known_agents: list[AgentId] = []
        self.known_frameworks: list[FrameworkId] = []
        self.tasks = 0
        self.seq = 0
        self.populate()

    def populate(self) -> None:
        """Start two agents, and two frameworks with tasks."""
        for host in ("h0", "h1"):
            session = self.world.agent(ROOMY, host, agent_id=self.new_agent_id())
            self.known_agents.append(self.world.agent_id(session))
        for role, owner in (("r1", "anna"), ("r2", "bob")):
            self.world.as_principal(self.named(owner))
            session = self.world.framework(role, "cpus:1;mem:1GB", failover_timeout_s=30.0)
            self.world.as_principal("")
            self.known_frameworks.append(self.world.framework_id(session))
        for offer in list(self.world.state.offers.values()):
            self.launch(offer.offer_id, "cpus:1;mem:1GB", "cpus:1;mem:1GB")

    def named(self, name: str) -> str:
        """Return the name of a caller; nobody has one without authentication."""
        return name if self.is_auth_on else ""

    def new_agent_id(self) -> AgentId:
        """Return the id of a new agent; empty if the master is to choose one."""
        self.agents_made += self.is_auth_on
        return AgentId(f"a{self.agents_made}" if self.is_auth_on else "")

    def next_task(self, amount: str) -> TaskInfo:
        """Return a task; each third runs as another user than the agent."""
        task = make_task(f"t{self.tasks}", amount)
        is_third = self.tasks % 3 == 0
        return replace(task, command=Command(("true",), user="nobody")) if is_third else task

    def launch(self, offer_id: OfferId, *amounts: str) -> None:
        """Accept an outstanding offer."""
        framework_id = self.world.state.offers[offer_id].framework_id
        session = self.world.state.frameworks[framework_id].session
        assert session is not None
        tasks = []
        for amount in amounts:
            self.tasks += 1
            tasks.append(self.next_task(amount))
        self.call(session, calls.Accept((offer_id,), tuple(tasks)))

    @rule(
        role=st.sampled_from(ROLES),
        guarantee=st.integers(0, 3),
        limit=st.one_of(st.none(), st.integers(3, 9)),
        preemption=st.sampled_from([None, None, True, False]),
    )
    def an_operator_sets_a_role(
        self, role: Role, guarantee: int, limit: int | None, preemption: bool | None
    ) -> None:
        settings = RoleSettings(
            guarantee={"cpus": guarantee * 1000} if guarantee else {},
            limit={} if limit is None else {"cpus": limit * 1000},
            preemption=preemption,
        )
        self.world.state.allocator.set_role(role, settings)
        self.world.do(TimePassed())

    def sequence(self) -> int:
        self.seq += 1
        return self.seq

    @rule(target=agents, cpus=SMALL, back=st.integers(0, 5), keep=st.booleans())
    def agent_registers(self, cpus: int, back: int, keep: bool) -> SessionId:
        is_known = back < len(self.known_agents)
        agent_id = self.known_agents[back] if is_known else self.new_agent_id()
        known = self.world.state.agents.get(agent_id)
        listed = _listed(list(known.tasks.values())) if known is not None and keep else ()
        resources = f"cpus:{cpus * 2};mem:{cpus * 3}GB;ports:[{back * 10}-{back * 10 + 5}]"
        session = self.world.agent(resources, f"h{back}", agent_id=agent_id, tasks=listed)
        if session not in self.world.closed:
            self.known_agents.append(self.world.agent_id(session))
        return session

    @rule(
        target=frameworks,
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

    def call(self, session: SessionId, call: calls.Call) -> None:
        self.world.do(FrameworkCalled(session, self.sequence(), call))

    @rule(
        session=frameworks,
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

    @rule(session=frameworks, pick=st.integers(0, 3), refuse=st.sampled_from([None, 0.0, 50.0]))
    def declines(self, session: SessionId, pick: int, refuse: float | None) -> None:
        offered = self.offered(session)
        if pick < len(offered):
            self.call(session, calls.Decline((offered[-1 - pick].offer_id,), refuse))

    @rule(session=frameworks, demands=DEMANDS)
    def changes_demand(self, session: SessionId, demands: list[Demand]) -> None:
        self.call(session, calls.UpdateDemand(tuple(demands)))

    @rule(
        session=frameworks,
        kind=st.sampled_from([calls.Suppress, calls.Revive]),
        roles=st.lists(st.sampled_from(ROLES), max_size=2, unique=True),
    )
    def silences_roles(
        self, session: SessionId, kind: type[calls.Suppress | calls.Revive], roles: list[Role]
    ) -> None:
        self.call(session, kind(tuple(roles)))

    @rule(
        session=frameworks,
        call=st.sampled_from(
            [
                calls.Reconcile(()),
                calls.Malformed("accept", InvalidRequest("bad"), (TaskId("x"),)),
            ]
        ),
    )
    def calls_simply(self, session: SessionId, call: calls.Call) -> None:
        self.call(session, call)

    @rule(session=frameworks, number=st.integers(0, 30))
    def kills(self, session: SessionId, number: int) -> None:
        self.call(session, calls.Kill(TaskId(f"t{number}")))

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
        changes=st.lists(
            st.sampled_from(
                [
                    RemoveRule("anna"),
                    *(SetRule(rule_of(text)) for text in POLICY),
                    AddMember("admin", "client/anna"),
                    RemoveMember("admin", "client/anna"),
                    RemoveMember("admin", "client/admin"),
                    SetGroup("admin", frozenset({"oidc:admins"})),
                ]
            ),
            max_size=2,
        ),
        who=st.sampled_from(["admin", "admin", "anna", "nobody"]),
    )
    def policy_changes(self, changes: list[PolicyChange], who: str) -> None:
        """Change rules; whoever changes them can do so again, or the holder of a token."""
        before, state = self.world.state.access, self.world.state
        command = UpdatePolicy(1, tuple(changes), self.wall_ms(), caller=caller(who))
        self.world.do(command)
        if before != state.access and self.is_auth_on:
            holders = [Principal(token.principal) for token in state.tokens if token.principal]
            assert any(may_administer(state, each) for each in (caller(who), *holders))
            assert decide(before, caller(who), Action.ADMINISTER, CLUSTER_OBJECT)

    @rule(
        number=st.integers(0, 5),
        kind=st.sampled_from([TokenKind.CLIENT, TokenKind.CLIENT, TokenKind.JOIN]),
        expires_s=st.sampled_from([None, 5, 50]),
        uses=st.sampled_from([None, 1]),
        who=st.sampled_from(["local-admin", "nobody"]),
    )
    def token_is_created(self, number: int, kind: TokenKind, **more: Any) -> None:
        expires = None if more["expires_s"] is None else self.wall_ms() + more["expires_s"] * 1000
        is_join = kind is TokenKind.JOIN
        made = token(
            f"0000000{number}",
            "" if is_join else "anna",
            kind,
            expires_ms=expires,
            uses_left=more["uses"] if is_join else None,
        )
        self.world.do(CreateToken(1, made, self.wall_ms(), caller(more["who"])))

    @rule(number=st.integers(0, 9), who=st.sampled_from(["local-admin", "anna", "nobody"]))
    def token_is_revoked(self, number: int, who: str) -> None:
        token_id = TokenId(f"0000000{number}")
        known = self.world.state.tokens.get(token_id)
        self.world.do(RevokeToken(1, token_id, self.wall_ms(), caller(who)))
        if self.is_auth_on and who == "nobody":
            assert self.world.state.tokens.get(token_id) == known

    @rule(number=st.integers(0, 5), pick=st.integers(0, 5), own=st.integers(6, 9))
    def agent_joins(self, number: int, pick: int, own: int) -> None:
        """Join under a new id, or under that of a known agent."""
        state = self.world.state
        known = self.known_agents[pick] if pick < len(self.known_agents) else AgentId("new")
        before, join_id = state.tokens.of_agent(known), TokenId(f"0000000{number}")
        agent = state.agents.get(known)
        was_proven = agent is not None and agent.is_authenticated
        own_id = TokenId(f"0000000{own}")
        self.world.do(JoinAgent(1, join_id, known, own_id, f"{own}" * 64, {}, self.wall_ms()))
        if was_proven or before is not None:
            assert state.tokens.of_agent(known) == before

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

    def wall_ms(self) -> int:
        """Return the time of day in milliseconds."""
        return NOW_MS + int(self.world.now * 1000)

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
        # The pass that follows the answer may offer the agent again.
        assert isinstance(answer, AgentStatus)
        assert replace(answer, offered=status.offered) == status
        assert known.deactivated or not isinstance(action, Deactivate)
        assert (known.drain is not None) or not isinstance(action, Drain)
        assert (name in state.gone) == isinstance(action, MarkGone)
        assert not known.offers or isinstance(action, Reactivate)
        if isinstance(action, Reactivate):
            # An agent that cannot launch tasks stays withheld.
            is_able = known.state.name == "connected" and not known.problems
            assert known.is_offered == is_able

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
                listed = _listed(kept)
                self.world.agent(ROOMY, agent.hostname, agent_id=agent.agent_id, tasks=listed)
        for framework in list(state.frameworks.values()):
            if framework.is_disconnected:
                self.world.as_principal(framework.owner or self.named("carl"))
                self.world.framework(
                    roles=framework.roles,
                    framework_id=framework.framework_id,
                    failover_timeout_s=30.0,
                )
                self.world.as_principal("")

    @rule(session=agents)
    def agent_is_heard(self, session: SessionId) -> None:
        self.world.do(Received(session))

    @rule(session=agents, is_full=st.booleans(), refuses=st.booleans())
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

    @rule(session=frameworks, number=st.integers(0, 30), sequence=st.integers(0, 4))
    def acknowledges(self, session: SessionId, number: int, sequence: int) -> None:
        for agent_id in self.world.state.agents:
            update = (agent_id, TaskId(f"t{number}"), sequence)
            self.call(session, calls.Acknowledge((update,)))

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

    @rule(pick=st.integers(0, 9), amounts=st.lists(AMOUNTS, min_size=1, max_size=3))
    def accepts_what_stands(self, pick: int, amounts: list[str]) -> None:
        standing = list(self.world.state.offers.values())
        if not standing:
            return
        self.launch(standing[pick % len(standing)].offer_id, *amounts)

    @rule(session=agents, agent_id=st.sampled_from(["", "other"]))
    def agent_reports_nonsense(self, session: SessionId, agent_id: str) -> None:
        if session in self.world.state.peers:
            self.world.report(session, "unknown", "t1", TaskState.FINISHED, 1, agent_id)

    @rule(session=st.one_of(consumes(agents), consumes(frameworks)))
    def stream_breaks(self, session: SessionId) -> None:
        self.world.end_session(session)

    @rule(session=consumes(agents))
    def agent_stops(self, session: SessionId) -> None:
        self.world.do(AgentStopped(session, "bye"))

    @rule(session=consumes(frameworks))
    def tears_down(self, session: SessionId) -> None:
        self.call(session, calls.Teardown())

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


def _listed(tasks: list[Task]) -> tuple[AgentTask, ...]:
    """Return the list of an agent on which all these tasks run."""
    listed = []
    for task in tasks:
        running = TaskStatus(
            task.framework_id,
            task.task_id,
            task.agent_id,
            TaskState.RUNNING,
            Source.EXECUTOR,
            sequence=max(task.sequence, 1),
        )
        listed.append(AgentTask(task.framework_id, task.info, running, (running,), task.role))
    return tuple(listed)


def _lasting(state: State) -> object:
    """Return what must survive a failover."""
    return (
        {agent_id: agent.record() for agent_id, agent in state.agents.items()},
        set(state.gone),
        state.access,
        list(state.tokens),
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
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
