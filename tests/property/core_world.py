"""World on which rules of the core's state machine act: agents, frameworks, an access policy."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize

from croupier.master.allocator.starvation import PreemptionRules
from croupier.master.core import calls
from croupier.master.core.effects import SessionId
from croupier.master.core.events import AgentTask, FrameworkCalled
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.master.core.tasks import Task
from croupier.model.access import CLUSTER as CLUSTER_OBJECT
from croupier.model.access import Action, decide
from croupier.model.demand import Demand
from croupier.model.ids import AgentId, FrameworkId, HoldId, OfferId, Role
from croupier.model.principal import Principal
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from croupier.model.task import Command, Source, TaskInfo, TaskState, TaskStatus
from tests.harness.secured_world import NOW_MS, SecuredWorld
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
ROOMY = "cpus:16;mem:32GB;disk:9GB"
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
AGENTS: Bundle[SessionId] = Bundle("agents")
FRAMEWORKS: Bundle[SessionId] = Bundle("frameworks")


class CoreWorld(RuleBasedStateMachine):
    """Two agents, and two frameworks with tasks; what all rules need."""

    holds_made = 0

    @initialize(
        weight=st.integers(1, 3),
        is_auth_on=st.booleans(),
        is_held=st.booleans(),
        has_followed=st.booleans(),
    )
    def begin(self, weight: int, is_auth_on: bool, is_held: bool, has_followed: bool) -> None:
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
        self.populate(is_held)
        if has_followed:
            self.follow_in_hold(0)

    def populate(self, is_held: bool) -> None:
        """Start two agents, and two frameworks with tasks; the first of each may be in a hold."""
        for host in ("h0", "h1"):
            session = self.world.agent(
                ROOMY, host, agent_id=self.new_agent_id(), features="volumes,gangs,requeue"
            )
            self.known_agents.append(self.world.agent_id(session))
        for role, owner in (("r1", "anna"), ("r2", "bob")):
            self.world.as_principal(self.named(owner))
            session = self.world.framework(role, "cpus:1;mem:1GB", failover_timeout_s=30.0)
            self.world.as_principal("")
            self.known_frameworks.append(self.world.framework_id(session))
        for offer in list(self.world.state.offers.values()):
            self.launch(offer.offer_id, "cpus:1;mem:1GB", "cpus:1;mem:1GB", is_held=is_held)

    def named(self, name: str) -> str:
        """Return the name of a caller; empty without authentication."""
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

    def launch(self, offer_id: OfferId, *amounts: str, is_held: bool = False) -> None:
        """Accept an outstanding offer; with `is_held`, in a hold that the first task fills."""
        framework_id = self.world.state.offers[offer_id].framework_id
        session = self.world.state.frameworks[framework_id].session
        assert session is not None
        tasks = []
        for amount in amounts:
            self.tasks += 1
            tasks.append(self.next_task(amount))
        self.holds_made += is_held
        hold = calls.MakeHold(HoldId(f"h{self.holds_made}"), tasks[0].resources)
        holds = (hold,) if is_held else ()
        self.call(session, calls.Accept((offer_id,), tuple(tasks), holds=holds))

    def follow_in_hold(self, pick: int) -> None:
        """End a task in a hold, and launch one like it there before its end is acknowledged.

        The store has both of them in the hold, as the next master finds them.
        """
        state = self.world.state
        held = [
            (agent.session, task)
            for agent in state.agents.values()
            for task in agent.tasks.values()
            if agent.session is not None and task.held and task.is_active
        ]
        if not held:
            return
        session, task = held[pick % len(held)]
        number = task.sequence + 1
        self.world.report(session, task.framework_id, task.task_id, TaskState.FINISHED, number)
        for offer in state.offers.values():
            if offer.hold_id == task.hold_id and task.held <= offer.resources:
                self.launch(offer.offer_id, str(task.held))
                self.world.check_recovery()
                break

    def sequence(self) -> int:
        self.seq += 1
        return self.seq

    def call(self, session: SessionId, call: calls.Call) -> None:
        self.world.do(FrameworkCalled(session, self.sequence(), call))

    def wall_ms(self) -> int:
        """Return the time of day in milliseconds."""
        return NOW_MS + int(self.world.now * 1000)


def listed_tasks(tasks: list[Task]) -> tuple[AgentTask, ...]:
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


def may_administer(state: State, principal: Principal) -> bool:
    return bool(decide(state.access, principal, Action.ADMINISTER, CLUSTER_OBJECT))
